"""Measures the speed of translation with this package.

    python benchmarks/peers/translate_ours.py --workdir=DIR --text=FILE
        [--beam_size=1] [--single] [--jit_compile] [--shortlist]
        [--precision=bfloat16] [--engine=ctranslate2] [--compute_type=int8]

All lines are translated by as many workers as there are cores.
"""

import dataclasses

import measurement

from keras_transformer.commands.startup import load, prepare_search
from keras_transformer.config import DecodingConfig
from keras_transformer.storage.workdir import WorkDirectory


def main():
    parser = measurement.translation_parser(__doc__)
    parser.add_argument("--workdir", required=True)
    parser.add_argument("--jit_compile", action="store_true")
    parser.add_argument("--shortlist", action="store_true")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--engine", default="native")
    parser.add_argument("--compute_type", default="default")
    arguments = parser.parse_args()
    prepare_search(arguments.jit_compile)
    decoding = WorkDirectory(arguments.workdir).read_section(
        "decoding", DecodingConfig
    )
    if arguments.engine == "ctranslate2":  # the same search as the peer's
        decoding = dataclasses.replace(
            decoding, stopping="fairseq", length_normalization="power"
        )
    translator = load("keras_transformer.translator").Translator.load(
        arguments.workdir,
        decoding,
        engine=arguments.engine,
        compute_type=arguments.compute_type,
        jit_compile=arguments.jit_compile,
        shortlist=arguments.shortlist,
        precision=arguments.precision,
        num_threads=1 if arguments.single else measurement.CORES,
    )
    translator = translator.with_decoding(
        beam_size=arguments.beam_size,
        length_penalty=measurement.LENGTH_PENALTY,
        max_output_length=arguments.max_output_length,
    )
    is_native = arguments.engine == "native"
    measurement.measure_translation(
        translator.translate,
        arguments,
        "tensorflow" if is_native else arguments.engine,
    )


if __name__ == "__main__":
    main()
