"""Options for the translator that a command opens."""

import dataclasses
import os
import typing
from collections.abc import Mapping, Sequence

from keras_transformer.base.fields import GIVEN, Fields, hp, names_of, required
from keras_transformer.base.refusals import expect
from keras_transformer.commands.flags import (
    Arguments,
    CommandError,
    join_list,
    split_list,
    user_errors,
)
from keras_transformer.commands.startup import (
    DeviceOptions,
    choose_backend,
    prepare_search,
)
from keras_transformer.config import (
    CHECKPOINT_KINDS,
    COMPUTE_TYPES,
    SEARCH_ENGINES,
    SEARCH_PRECISIONS,
    DecodingConfig,
    changed_search,
)
from keras_transformer.data.languages import LANGUAGE_TOKENS, shortened
from keras_transformer.storage import box
from keras_transformer.storage.workdir import WorkDirectory, open_ensemble
from keras_transformer.translation import abilities, engines
from keras_transformer.translation.glossary import Check, Glossary, read_words
from keras_transformer.translation.requests import Terminology


class WorkdirOptions(Fields):
    """The work directory."""

    workdir: str = required("DIR", "Directory that kt-train made.")


class SearchDeviceOptions(DeviceOptions):
    """How a translator computes."""

    precision: str = hp(
        "float32",
        "Precision of weights and products. bfloat16 is faster on processors"
        " that support it; some translations then differ.",
        choices=SEARCH_PRECISIONS,
        common=True,
    )
    jit_compile: bool | None = hp(
        None,
        "Compile with XLA, which takes seconds for each shape of a batch."
        " Default: only kt-serve, for single sentences, where it measures that"
        " this is faster.",
    )
    engine: str = hp(
        "native",
        "Engine of the search: native, the framework; ctranslate2, an export"
        " that the first call makes in the work directory. ctranslate2 needs"
        " the extra of this name, and sets the search options that are not"
        " given.",
        choices=SEARCH_ENGINES,
        excludes={"jit_compile": True, "backend": GIVEN},
        common=True,
    )
    compute_type: str = hp(
        "default",
        "Type in which CTranslate2 computes; default: float32.",
        choices=COMPUTE_TYPES,
        needs={"engine": GIVEN},
    )

    def prepare_process(self) -> None:
        """Chooses backend, device and threads. Call this before `load`."""
        choose_backend(self)
        prepare_search(bool(self.jit_compile))

    def choose_backend(self) -> None:
        """Chooses the backend of a command that does not search.

        Raises CommandError if the engine does not use Keras.
        """
        expect(
            engines.find_engine(self.engine).NEEDS_KERAS,
            "engine=native for a command without a search",
            error=CommandError,
            engine=self.engine,
        )
        choose_backend(self)

    def check_engine(self, workdirs: Sequence[str], shortlist: bool) -> None:
        """Raises ValueError for options that the engine does not support."""
        engine = engines.find_engine(self.engine)
        engines.check_engine(
            abilities.EngineOptions(
                self.engine,
                self.precision,
                self.compute_type,
                # The framework checks its device when it starts.
                None if engine.NEEDS_KERAS else self.device,
                self.jit_compile,
                shortlist,
                len(workdirs),
            )
        )

    def of_workdir(self, path: str) -> "EnsembleOptions":
        """Returns translator options with these device settings."""
        given = {n: getattr(self, n) for n in names_of(SearchDeviceOptions)}
        return EnsembleOptions(workdir=path, **given)


class TranslatorOptions(SearchDeviceOptions, WorkdirOptions):
    """The translator."""

    workdir: str = hp(
        "",
        "Directory that kt-train made. Default: the package's model of"
        " --source_language and --target_language.",
        common=True,
    )
    checkpoint: str | None = hp(
        None,
        "averaged, best, latest, or a path. Default: the first of these that"
        " exists.",
    )
    max_source_length: int | None = hp(
        None,
        "Maximum length of a source in tokens, EOS included; longer ones are"
        " truncated. Default: the maximum in training.",
        low=2,
    )
    num_threads: int | None = hp(
        None,
        "Batches translated in parallel. Default: one per CPU core, or 1 with a"
        " GPU.",
        low=1,
    )

    @property
    def workdirs(self) -> tuple[str, ...]:
        """The work directory of the model."""
        return (self.workdir,)

    def in_workdir(self, path: str) -> typing.Self:
        """Returns the options for another work directory.

        The kind of checkpoint stays the same. A path belongs to the first work
        directory, so the default replaces it.
        """
        kind = self.checkpoint if self.checkpoint in CHECKPOINT_KINDS else None
        return dataclasses.replace(self, workdir=path, checkpoint=kind)


class EnsembleOptions(TranslatorOptions):
    """The translator."""

    workdir: str = hp(
        "",
        "Directory that kt-train made; or several, separated by commas:"
        " models with the same languages are an ensemble, and search as one."
        " Default: the package's model of --source_language and"
        " --target_language; of kt-serve: all.",
        common=True,
    )

    @property
    def workdirs(self) -> tuple[str, ...]:
        """The work directories of the models."""
        return split_workdirs(self.workdir)


def split_workdirs(text: str) -> tuple[str, ...]:
    """Splits the paths of work directories at commas, unless it is one."""
    paths = () if os.path.exists(text) else split_list(text)
    return paths or (text,)


def join_workdirs(paths: Sequence[str]) -> str:
    """Joins paths of work directories, for `split_workdirs`."""
    return paths[0] if len(paths) == 1 else join_list(paths)


def check_ensemble(
    options: TranslatorOptions, search: Mapping[str, typing.Any]
) -> None:
    """Raises CommandError if `search` has `ensemble` with a single model."""
    expect(
        "ensemble" not in search or len(options.workdirs) > 1,
        "several work directories with ensemble",
        f"ensemble={search.get('ensemble')!r}, workdir={options.workdir!r}",
        error=CommandError,
    )


class ShortlistOptions(Fields):
    """The tokens of the output."""

    shortlist: bool = hp(
        False,
        "Score only the tokens of a shortlist, DIR/shortlist.txt, which"
        " kt-shortlist makes: faster on a CPU if the vocabulary is large.",
    )


class LanguageOptions(Fields):
    """The direction."""

    source_language: str | None = hp(
        None,
        "For models with several source languages: the language to translate"
        " from, e.g. eng_Latn.",
        common=True,
    )
    target_language: str | None = hp(
        None,
        "For models with several target languages: the language to translate"
        " into, e.g. fr; sources then have no tags. Default, for models with"
        " tags: each source starts with one, such as <2fr>.",
        common=True,
    )


class TerminologyOptions(Fields):
    """The terminology."""

    glossary: str | None = hp(
        None,
        "File of terms, one a line: the term, a tab, and its translation, for"
        " sentences with the term.",
        common=True,
    )
    avoid: str | None = hp(
        None,
        "File of words and phrases, one a line, that no translation may"
        " contain.",
    )

    def read(
        self, check: Check | None = None, tell: bool = True
    ) -> Terminology:
        """Reads the files. Arguments and errors are as in `Glossary.parse`."""
        parts: dict[str, typing.Any] = {}
        if self.glossary:
            parts["glossary"] = Glossary.read(self.glossary, check, tell)
        if self.avoid:
            parts["avoid"] = read_words(self.avoid)
        return Terminology(**parts)


# The sections that `TranslatorChoice.of` reads in commands that translate.
TRANSLATOR = (
    EnsembleOptions,
    ShortlistOptions,
    LanguageOptions,
    TerminologyOptions,
)


class OutputOptions(Fields):
    """The output."""

    n_best: int = hp(
        0,
        "Write this many translations of each line, best first, each as"
        " 'number ||| translation ||| score'. 0 writes only the best one.",
        low=0,
        common=True,
    )
    alignments: bool = hp(
        False,
        "After each translation, write ' ||| ' and the links between its"
        " words: source-target, from 0, from the attention of"
        " --alignment_layer.",
    )
    seed: int = hp(
        0,
        "Seed of sampling. The samples of a line depend on it and on the text"
        " of the line.",
        low=0,
        high=2**32 - 1,
    )


class TranslatorChoice(typing.NamedTuple):
    """The translator that a command line asks for.

    `translating.lines.open_translator` opens it.
    """

    options: TranslatorOptions
    # Fields of `DecodingConfig` on the command line, which override the work
    # directory's.
    search: Mapping[str, typing.Any]
    # The direction. None if each sentence has its own.
    languages: LanguageOptions | None = LanguageOptions()
    shortlist: bool = False  # as in `ShortlistOptions`
    terminology: TerminologyOptions = TerminologyOptions()

    @classmethod
    def of(
        cls,
        arguments: Arguments,
        section: type[TranslatorOptions] = TranslatorOptions,
    ) -> "TranslatorChoice":
        """Makes the choice from the options of a command line.

        `section` is `EnsembleOptions` if the command accepts several models.
        Raises CommandError if options contradict each other.
        """
        options = arguments.build(section)
        languages = arguments.build(LanguageOptions)
        if not options.workdir:
            with user_errors():
                path = box.choose(**vars(languages))
            options = dataclasses.replace(options, workdir=path)
        search = arguments.given_of(DecodingConfig)
        check_ensemble(options, search)
        terminology = arguments.build(TerminologyOptions)
        for name in ("glossary_mode", "glossary_bonus"):
            expect(
                name not in search or terminology.glossary,
                f"glossary with {name}",
                f"{name}={search.get(name)!r}, no glossary",
                error=CommandError,
            )
        return cls(
            options,
            search,
            languages,
            arguments.build(ShortlistOptions).shortlist,
            terminology,
        )

    def at(self, path: str) -> "TranslatorChoice":
        """Returns the choice for another work directory; see `in_workdir`."""
        options = self.options
        there = options if path == options.workdir else options.in_workdir(path)
        return self._replace(options=there)

    def read_search(self, tell: bool = False) -> DecodingConfig:
        """Reads the work directory's search, changed by the fields in `search`.

        Adapts other fields to the engine. With `tell`, logs these changes.
        """
        workdir = WorkDirectory(self.options.workdirs[0])
        before = workdir.read_section("decoding", DecodingConfig)
        search = changed_search(before, self.search)
        return engines.fitted(self.options.engine, search, self.search, tell)

    def read_direction(self) -> tuple[str, str]:
        """Returns source and target language, from the options or the model.

        A model's languages may be several, separated by commas. Raises
        ValueError if the model lacks a language of the options, or if it needs
        a language token and the options do not choose one of its languages.
        """
        own = WorkDirectory(self.options.workdirs[0]).read_languages()
        chosen = self.languages or LanguageOptions()
        direction = own.direction(
            chosen.source_language, chosen.target_language
        )
        if direction is None and own.language_tokens:
            missing = [
                f"{side}_language, one of {shortened(codes)}"
                for side, codes in (
                    ("source", own.sources),
                    ("target", own.targets),
                )
                if side in LANGUAGE_TOKENS[own.language_tokens].places.values()
                and getattr(chosen, f"{side}_language") is None
                and len(codes) > 1
            ]
            expect(False, "; and ".join(missing), "none")
        return (
            chosen.source_language or own.source_language,
            chosen.target_language or own.target_language,
        )

    def check(self) -> None:
        """Raises the errors of `open_translator`, but imports no framework."""
        options, files = self.options, self.terminology
        options.check_engine(options.workdirs, self.shortlist)
        directories = open_ensemble(options.workdirs, options.checkpoint)
        search, length = self.read_search(), options.max_source_length
        column = engines.column_of(options.engine)
        abilities.check(column, search)
        abilities.check_value(column, "glossary", files.glossary)
        if self.languages is not None:
            self.read_direction()
        for workdir in directories:
            workdir.check_translator(
                search, options.checkpoint, length, self.shortlist
            )
        files.read(tell=False)
