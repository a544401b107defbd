"""Writes a report of a training run: one HTML file.

    python -m trainers.report --workdir=DIR [--compare=DIR] --output=report.html

It has curves of the run's own records, its recipe, translations with their
references (the best and the worst among them), and BLEU by length. A run keeps
no translations, so the report translates test pairs, or validation pairs if
there are no test pairs. With --compare, two runs share the axes and translate
the same sentences. The file works without a network. The plots need the extra
`figures`.
"""

import dataclasses
import json
import pathlib
import typing

from keras_transformer.commands import flags
from keras_transformer.commands.startup import load_tensorflow
from keras_transformer.config import (
    CHECKPOINT_KINDS,
    DecodingConfig,
    TransformerConfig,
)
from keras_transformer.data.languages import choose_tags
from keras_transformer.fields import hp, required, same_field
from keras_transformer.figures.saving import check_matplotlib, suffix_of
from trainers.run.config import TrainingConfig
from trainers.run.data_config import DataConfig
from trainers.run.options import TranslatorOptions, WorkdirOptions

if typing.TYPE_CHECKING:
    from keras_transformer.translator import Translator
    from trainers.reporting.records import Records
    from trainers.run.progress import Progress


@dataclasses.dataclass(frozen=True)
class Options(WorkdirOptions):
    """The report."""

    compare: str = hp("", "Directory of a second run, to compare with.")
    output: str = required("FILE", "File to write; it ends with .html.")
    samples: int = hp(
        100,
        "Sentences to translate, spread evenly over the pairs; 0: none.",
        low=0,
    )
    test_files: tuple[str, ...] = hp(
        (),
        "PREFIX of PREFIX.en[.gz] and PREFIX.de[.gz], or several, separated by"
        " commas. Default: the test pairs of the data set, or its validation"
        " pairs.",
    )
    checkpoint: str | None = same_field(TranslatorOptions, "checkpoint")
    target_language: str | None = hp(
        None,
        "Of a model of several target languages: the one to translate into.",
    )

    def __post_init__(self):
        super().__post_init__()
        suffix_of(self.output, (".html",))
        check_matplotlib("a report")
        if self.compare and self.checkpoint not in (None, *CHECKPOINT_KINDS):
            raise ValueError(
                "with compare, checkpoint must be one of"
                f" {', '.join(CHECKPOINT_KINDS)}: a path belongs to one run."
                f" Received: checkpoint={self.checkpoint!r},"
                f" compare={self.compare!r}"
            )
        if not self.samples:
            for name in ("test_files", "checkpoint"):
                if getattr(self, name):
                    raise ValueError(
                        f"{name} has no effect without samples. Received:"
                        f" samples=0, {name}={getattr(self, name)}"
                    )


class Translation(typing.NamedTuple):
    """A sentence, translated."""

    source: str
    reference: str
    output: str
    bleu: float  # sentence BLEU of the output
    length: int  # source tokens, EOS not counted


@dataclasses.dataclass
class Run:
    """The content of a report about one run.

    From `checkpoint` on, it is set by `translate`.
    """

    name: str
    sections: dict[str, dict]  # of `config.json`
    flag_lines: list[str]  # of `flags.txt`
    records: "Records"
    progress: "Progress | None" = None  # of the newest checkpoint
    checkpoint: str = ""  # the name of that which translated
    num_parameters: int = 0
    translations: list[Translation] = dataclasses.field(default_factory=list)
    scores: dict[str, typing.Any] = dataclasses.field(default_factory=dict)
    decoding: str = ""  # a description of the search


def read_run(path: str, name: str) -> Run:
    """The `Run` of a work directory, without translations.

    Raises:
        ValueError: It is not a work directory.
        OSError: One of its files cannot be read.
    """
    from keras_transformer.workdir import WorkDirectory
    from trainers.reporting.records import read_records
    from trainers.run.progress import Progress

    workdir = WorkDirectory(path)
    sections = {
        section: dataclasses.asdict(workdir.read_section(section, kind))
        for section, kind in (
            ("model", TransformerConfig),
            ("data", DataConfig),
            ("training", TrainingConfig),
            ("decoding", DecodingConfig),
        )
    }
    lines: list[str] = []
    if workdir.flags_path.exists():
        # Not `splitlines`: a path may have a character such as U+2028.
        text = workdir.flags_path.read_text(encoding="utf-8")
        lines = text.removesuffix("\n").split("\n")
    try:
        # The last record may be older, and has no time without validation.
        prefix = workdir.latest.find_intact()  # which names the corrupt ones
    except ValueError:  # all are
        prefix = None
    return Run(
        name,
        sections,
        lines,
        read_records(workdir.logs),
        Progress.read(prefix) if prefix else None,
    )


def names_of(paths: list[str]) -> list[str]:
    """Short names of runs: the names of their directories if they differ.

    >>> names_of(["runs/a", "runs/b/"]), names_of(["x/run", "y/run"])
    (['a', 'b'], ['x/run', 'y/run'])
    """
    names = [pathlib.Path(path).resolve().name for path in paths]
    return names if len(set(names)) == len(names) else list(paths)


def read_pairs(
    data: DataConfig, test_files: tuple[str, ...], number: int
) -> tuple[str, list[tuple[str, str]]]:
    """Sentence pairs to translate, and a description of them.

    Args:
        data: The configuration in the work directory.
        test_files: Prefixes that replace the configured ones.
        number: Maximum number of pairs; they are spread evenly.

    Raises:
        ValueError: There are none.
        OSError: They cannot be read.
    """
    from trainers.run.corpora import read_split

    if test_files:
        data = dataclasses.replace(
            data,
            dataset="files",
            train_files=test_files,
            test_files=test_files,
            mixture="",  # of other files
        )
    for name, split in (("test", "test"), ("validation", "valid")):
        pairs = list(read_split(data, split))
        if pairs:
            number = min(number, len(pairs))
            chosen = [pairs[i * len(pairs) // number] for i in range(number)]
            return f"{number} of {len(pairs):,} {name} pairs", chosen
        if test_files:
            break
    raise ValueError(
        "expected pairs to translate: --test_files=PREFIX, or --samples=0 for a"
        " report without translations. Received: none"
    )


def translate(
    run: Run,
    translator: "Translator",
    pairs: list[tuple[str, str]],
    target_language: str,
) -> None:
    """Translates pairs, and stores translations and scores in a `Run`.

    Raises:
        RunError: The model's logits are not finite.
    """
    from sacrebleu.metrics import BLEU

    from trainers.scoring.metrics import TranslationMetric

    metric = TranslationMetric(
        target_language, run.sections["training"]["bleu_tokenizer"]
    )
    # A short sentence has no 4-grams: they are not counted, not smoothed.
    sentence_bleu = BLEU(effective_order=True, tokenize=metric.tokenizer)
    sources, references = (list(side) for side in zip(*pairs, strict=True))
    try:
        outputs = translator.translate(sources)
    except FloatingPointError as error:
        raise flags.RunError(str(error)) from error
    rows = translator.tokenizer.source.to_ids(sources)
    run.translations = [
        Translation(
            source,
            reference,
            output,
            sentence_bleu.sentence_score(output, [reference]).score,
            len(row) - 1,
        )
        for source, reference, output, row in zip(
            sources, references, outputs, rows, strict=True
        )
    ]
    run.scores = metric.measure(outputs, references)
    run.scores["by_length"] = score_by_length(run.translations, metric.score)
    run.checkpoint = "/".join(
        pathlib.Path(translator.checkpoint or "").parts[-2:]
    )
    run.num_parameters = translator.model.count_params()
    decoding = translator.decoding
    run.decoding = (
        "sampling"
        if decoding.sampling
        else f"beam {decoding.beam_size},"
        f" length penalty {decoding.length_penalty:g}"
    )


def score_by_length(
    translations: list[Translation],
    score: typing.Callable[[list[str], list[str]], float],
) -> list[tuple[int, int, int, float]]:
    """BLEU of sentences of similar length.

    Args:
        translations: The `Translation`s.
        score: Corpus BLEU of outputs and references.

    Returns:
        `(shortest, longest, sentences, BLEU)` for each of at most six groups of
        about equal size; lengths in source tokens.
    """
    ordered = sorted(translations, key=lambda one: one.length)
    groups: list[list[Translation]] = [[]]
    for one in ordered:
        is_full = 6 * len(groups[-1]) >= len(ordered)
        # Sentences of one length stay together.
        if is_full and groups[-1][-1].length != one.length:
            groups.append([])
        groups[-1].append(one)
    return [
        (
            group[0].length,
            group[-1].length,
            len(group),
            score([o.output for o in group], [o.reference for o in group]),
        )
        for group in groups
    ]


def check_comparable(runs: list[Run]) -> None:
    """Raises ValueError unless runs translate between the same languages."""
    data = [run.sections["data"] for run in runs]
    pairs = [f"{d['source_language']}-{d['target_language']}" for d in data]
    if len(set(pairs)) > 1:
        raise ValueError(
            "compare must name a run of the same languages. Received:"
            f" {' and '.join(pairs)}"
        )


def read_runs(options: Options) -> tuple[list[Run], str]:
    """The runs of a report, and a description of the translated pairs.

    Raises:
        CommandError: A work directory or the pairs cannot be used.
        RunError: A model's logits are not finite.
    """
    from keras_transformer.translator import Translator

    paths = [path for path in (options.workdir, options.compare) if path]
    with flags.user_errors():
        runs = [
            read_run(path, name)
            for path, name in zip(paths, names_of(paths), strict=True)
        ]
        check_comparable(runs)
    if not options.samples:
        return runs, ""
    with flags.user_errors():
        data = DataConfig(**runs[0].sections["data"])
        language = options.target_language
        if language is None and data.tags:
            raise ValueError(
                "target_language must be one that the model translates into:"
                f" {', '.join(data.tags)}. Received: no target_language"
            )
        tags = []
        if language is not None:
            tags = choose_tags(data.target_language, language)
            data = data.into(language)
        what, pairs = read_pairs(data, options.test_files, options.samples)
        translators = [
            Translator.load(path, checkpoint=options.checkpoint)
            for path in paths
        ]
    if tags:
        translators = [one.with_source_tags(tags) for one in translators]
    for run, translator in zip(runs, translators, strict=True):
        translate(run, translator, pairs, data.target_language)
    return runs, what


def main(argv: list[str] | None = None) -> None:
    """Runs the command."""
    with flags.exit_status("trainers.report"):
        options = flags.parse(argv, __doc__, Options).build(Options)
        with flags.user_errors():
            flags.check_output(options.output)
        # Wrong flags are refused, and help is shown, before TensorFlow is
        # imported, which takes seconds.
        load_tensorflow()
        from keras_transformer.files import write_atomically
        from trainers.reporting.page import make_page

        runs, what = read_runs(options)
        with flags.user_errors():
            write_atomically(options.output, make_page(runs, what))
        for run in runs:
            if run.scores:
                flags.show(
                    f"{run.name}: {what} translated",
                    json.dumps({"run": run.name, "bleu": run.scores["bleu"]}),
                )
        flags.show(options.output)


if __name__ == "__main__":
    main()
