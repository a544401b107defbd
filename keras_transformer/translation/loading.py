"""Opening of work directories and models of other systems for translators."""

import dataclasses
import os
import typing
from collections.abc import Sequence

from absl import logging

from keras_transformer.base.refusals import expect
from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.data.languages import Direction, Languages
from keras_transformer.storage.workdir import open_ensemble
from keras_transformer.text.tokenization import Tokenizer, TokenizerPair
from keras_transformer.translation import engines
from keras_transformer.translation.abilities import EngineOptions, check
from keras_transformer.translation.limits import Limits
from keras_transformer.translation.shortlist import Shortlist

IN_BOTH = ("jit_compile",)  # options of both `EngineOptions` and `Translator`


@dataclasses.dataclass(frozen=True)
class About:
    """The languages, direction and checkpoints of a translator's models."""

    languages: Languages = Languages()  # the `Languages` of the model
    # The `Direction` of sentences without their own. None if the model has
    # several: then each sentence has its own, or begins with a tag.
    direction: Direction | None = Direction()
    # Paths of the checkpoints that `load` read, one for each model; empty if
    # the models were made elsewhere.
    checkpoints: tuple[str, ...] = ()


UNKNOWN = About()


class Parts(typing.NamedTuple):
    """The arguments of a `Translator`: `options` are the keyword arguments."""

    tokenizer: Tokenizer | TokenizerPair
    models: Sequence[typing.Any]
    decoding: DecodingConfig
    options: dict[str, typing.Any]


def open_workdirs(
    workdirs: Sequence[str | os.PathLike],
    decoding: DecodingConfig | None,
    checkpoint: str | None,
    own: EngineOptions,
    options: dict[str, typing.Any],
) -> Parts:
    """Loads the models of work directories; see `Translator.load`."""
    engine = engines.check_engine(own)
    directories = open_ensemble(workdirs, checkpoint)
    first = directories[0]
    configs = [d.read_section("model", TransformerConfig) for d in directories]
    if "max_source_length" not in options:
        lengths = [d.read_max_length() for d in directories]
        options["max_source_length"] = min(lengths)
    if decoding is None:
        decoding = first.read_section("decoding", DecodingConfig)
        decoding = engines.fitted(own.engine, decoding)
    check(engines.column_of(own.engine), decoding)
    tokenizer = first.load_tokenizer()
    if own.shortlist:
        path = first.shortlist_path
        made = f"{path}, which kt-shortlist makes"
        expect(path.exists(), made, "no such file")
        options["shortlist"] = Shortlist.read(path, tokenizer)
    limits = Limits(configs, decoding, options["max_source_length"])
    threads = options.get("num_threads")
    loaded = engine.load(
        engines.Opened(directories, checkpoint, tokenizer, limits, own, threads)
    )
    if loaded.num_threads:
        options["num_threads"] = loaded.num_threads
    _warn(limits.warnings)
    languages = first.read_languages()
    options["about"] = About(
        languages, languages.direction(), tuple(loaded.prefixes)
    )
    return Parts(tokenizer, loaded.models, decoding, options)


def open_imported(
    name: str | os.PathLike,
    imported: typing.Any,
    decoding: DecodingConfig | None,
    languages: tuple[str | None, str | None],
    precision: str,
    options: dict[str, typing.Any],
) -> Parts:
    """Makes a translator's parts from a model of another system.

    `imported` is that model as an importer read it. Other arguments are as in
    `Translator.from_pretrained`. Raises ValueError for options of engines.
    """
    own = {n: v for n, v in options.items() if n in EngineOptions._fields}
    usable = EngineOptions(
        precision=precision, jit_compile=options.get("jit_compile")
    )
    others = [n for n, value in own.items() if value != getattr(usable, n)]
    wanted = f"a work directory, which kt-import makes, for {', '.join(others)}"
    expect(not others, wanted, name)
    engines.check_engine(usable)
    options = {n: options[n] for n in options if n not in own or n in IN_BOTH}
    about = About(imported.languages, imported.languages.direction(*languages))
    model = imported.make_model(precision)
    options = {"max_source_length": imported.max_length, **options}
    decoding = decoding or imported.decoding
    _warn(f"{name}: {note}" for note in imported.notes)
    length = options["max_source_length"]
    _warn(Limits([model.config], decoding, length).warnings)
    return Parts(
        imported.tokenizer, [model], decoding, {**options, "about": about}
    )


def _warn(lines):
    for line in lines:
        logging.warning("%s", line)
