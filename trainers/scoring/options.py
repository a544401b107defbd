"""Options that the scoring commands share."""

from keras_transformer.base.fields import GIVEN, Fields, hp
from trainers.run.training_config import BLEU_TOKENIZERS


class TestOptions(Fields):
    """The sentence pairs."""

    test_files: tuple[str, ...] = hp(
        (),
        "PREFIX of PREFIX.en[.gz] and PREFIX.de[.gz], or a file of both, such"
        " as test.csv; or several, separated by commas. Default, without"
        " test_set: the test pairs of the data set that the model was trained"
        " on.",
        excludes={"test_set": GIVEN},
        common=True,
    )
    test_set: str = hp(
        "",
        "Name of a test set in sacreBLEU, such as wmt14/full, which sacreBLEU"
        " downloads at the first use.",
    )


class MetricOptions(Fields):
    """The score."""

    bleu_tokenizer: str | None = hp(
        None,
        "sacreBLEU's tokenizer; auto: by the target language as sacreBLEU does"
        " (zh, ja-mecab, ko-mecab, else 13a). Default: as in the training.",
        choices=BLEU_TOKENIZERS,
    )
