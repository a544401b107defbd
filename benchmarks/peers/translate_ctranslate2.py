"""Measures the speed of translation with CTranslate2.

    .venv-peers/ctranslate2/bin/python
        benchmarks/peers/translate_ctranslate2.py --model=DIR --text=FILE
        [--beam_size=1] [--single] [--compute_type=int8] [--shortlist]

DIR is an export of a work directory, `savedmodel.export --format=ctranslate2`.
Each core has a worker with one thread. With --single there is one worker. One
worker with several threads was several times slower on two cores.
"""

import json
import math

import ctranslate2
import measurement

from savedmodel import reload


def main():
    parser = measurement.translation_parser(__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument(
        "--compute_type", choices=["float32", "int8"], default="float32"
    )
    parser.add_argument("--shortlist", action="store_true")
    arguments = parser.parse_args()
    translate = make_translate(
        arguments.model,
        workers=1 if arguments.single else measurement.CORES,
        compute_type=arguments.compute_type,
        longest=arguments.max_output_length or math.inf,
        beam_size=arguments.beam_size,
        length_penalty=measurement.LENGTH_PENALTY,
        use_vmap=arguments.shortlist,
    )
    measurement.measure_translation(translate, arguments, "ctranslate2")


def make_translate(model, workers, compute_type, longest, **search):
    """Returns a function from lines to their translations.

    Args:
        model: An export of `savedmodel.export --format=ctranslate2`.
        workers: Batches that are translated at the same time.
        compute_type: The type of the products.
        longest: Maximum number of tokens of an output.
        **search: Options of `translate_batch`.
    """
    directory = reload.find_export(model)
    description = json.loads((directory / reload.DESCRIPTION).read_text())
    extra_length = description["decoding"]["extra_length"]
    encode, decode = reload.tokenizer.load_tokenizer(
        directory, {"max_source_length": math.inf}
    )
    sources, targets = reload.tokenizer.load_vocabularies(directory)
    translator = ctranslate2.Translator(
        str(directory),
        inter_threads=workers,
        intra_threads=1,
        compute_type=compute_type,
    )

    def translate(lines):
        rows = [encode(line)[0][:-1] for line in lines]  # it adds EOS itself
        results = translator.translate_batch(
            [sources.processor.id_to_piece(row) for row in rows],
            **search,
            # One limit per call, while ours depends on each source.
            max_decoding_length=min(
                max(map(len, rows)) + extra_length, longest
            ),
            min_decoding_length=0,  # without EOS
            max_batch_size=2048,
            batch_type="tokens",
            return_end_token=True,  # so that the penalty counts EOS, like ours
        )
        return [
            decode(targets.processor.piece_to_id(result.hypotheses[0]))
            for result in results
        ]

    return translate


if __name__ == "__main__":
    main()
