"""Measures a translator on sentence pairs: BLEU and chrF by sacreBLEU.

    python -m trainers.evaluate --workdir=DIR --test_files=PREFIX[,PREFIX...]

Without --test_files, the test pairs of the data set that the model was trained
on are used, if it has any. The last line is a JSON object.
"""

import dataclasses
import json
import time

from keras_transformer import flags
from keras_transformer.config import DecodingConfig
from keras_transformer.fields import Fields, hp
from keras_transformer.startup import load_tensorflow
from trainers.config import DataConfig, TrainingConfig, same_field
from trainers.translate import TranslatorOptions, load_translator


@dataclasses.dataclass(frozen=True)
class Options(Fields):
    """The sentence pairs."""

    test_files: tuple[str, ...] = hp(
        (),
        "PREFIX of PREFIX.en[.gz] and PREFIX.de[.gz], or several, separated by"
        " commas.",
    )
    output: str | None = hp(
        None, "File to write the translations to; left out: none."
    )
    bleu_tokenizer: str = same_field(TrainingConfig, "bleu_tokenizer")


def read_test_pairs(data, test_files):
    """The pairs to measure on, a list of (source, target).

    Args:
        data: The `DataConfig` of the work directory.
        test_files: Prefixes; none: those of the work directory's data set.

    Raises:
        ValueError: There are none, or they cannot be read.
    """
    if test_files:
        data = dataclasses.replace(
            data, dataset="files", train_files=test_files, test_files=test_files
        )
    from trainers.corpora import read_split  # not at the top: see `main`

    pairs = list(read_split(data, "test"))
    if not pairs:
        raise ValueError("expected --test_files=PREFIX. Received: none")
    return pairs


def main(argv=None):
    """Runs the command."""
    with flags.exit_status("trainers.evaluate"):
        arguments = flags.parse(
            argv, __doc__, TranslatorOptions, Options, DecodingConfig
        )
        arguments.build(Options)  # refused now, if it is wrong
        path = arguments.build(TranslatorOptions).workdir
        load_tensorflow()
        # Imported here, since they import TensorFlow, which takes seconds:
        # wrong flags are refused, and help is shown, before.
        from keras_transformer.workdir import WorkDirectory
        from trainers.evaluation import TranslationMetric

        workdir = WorkDirectory(path)
        with flags.user_errors():
            training = workdir.read_section("training", TrainingConfig)
            data = workdir.read_section("data", DataConfig)
        options = arguments.build(
            Options, bleu_tokenizer=training.bleu_tokenizer
        )
        with flags.user_errors():
            metric = TranslationMetric(
                data.target_language, options.bleu_tokenizer
            )
            pairs = read_test_pairs(data, options.test_files)
            if options.output:  # found now rather than after the work
                open(options.output, "a", encoding="utf-8").close()
        translator = load_translator(arguments)
        started = time.monotonic()
        translations = translator.translate([source for source, _ in pairs])
        seconds = time.monotonic() - started
        if options.output:
            with flags.user_errors():
                with open(options.output, "w", encoding="utf-8") as file:
                    file.writelines(line + "\n" for line in translations)
    result = metric.measure(translations, [reference for _, reference in pairs])
    print(json.dumps({**result, "seconds": round(seconds, 3)}))


if __name__ == "__main__":
    main()
