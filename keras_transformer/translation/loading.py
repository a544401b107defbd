"""Translators of work directories and of models of other systems."""

import dataclasses
import math
import os
import typing
from collections.abc import Sequence

from absl import logging

from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.data.languages import Direction, Languages
from keras_transformer.refusals import expect
from keras_transformer.translation import assemble
from keras_transformer.translation.limits import Limits, shortened_outputs
from keras_transformer.translation.shortlist import Shortlist
from keras_transformer.workdir import open_ensemble

# Options of `load` that need a work directory, with their defaults.
OF_WORKDIRS: dict[str, typing.Any] = dict(
    shortlist=False, engine="native", compute_type="default", device=None
)


@dataclasses.dataclass(frozen=True)
class About:
    """What a translator's model is."""

    languages: Languages = Languages()  # the `Languages` of the model
    # The `Direction` of sentences without one of their own. None if the model
    # has several: then each has its own, or begins with a tag.
    direction: Direction | None = Direction()
    # Paths of the checkpoints that `load` read, one for each model; none if the
    # models were made elsewhere.
    checkpoints: tuple[str, ...] = ()


UNKNOWN = About()


class Loadable:
    """How a `Translator`, the class that inherits this, is loaded."""

    def __init__(self, *arguments: typing.Any, **options: typing.Any):
        """As of `Translator`."""

    @classmethod
    def load(
        cls,
        workdir: str | os.PathLike | Sequence[str | os.PathLike],
        decoding: DecodingConfig | None = None,
        checkpoint: str | None = None,
        *,
        precision: str = "float32",
        shortlist: bool = False,
        engine: str = "native",
        compute_type: str = "default",
        device: str | None = None,
        **options,
    ) -> typing.Self:
        """The translator that training made.

        Logs the checkpoint that it reads, and why it skips another one.

        Args:
            workdir: Path of a work directory of `kt-train`; or of several,
                an ensemble of models with the same vocabulary and languages.
                Options and shortlist are the first one's.
            decoding: A `DecodingConfig`, by default the work directory's.
            checkpoint: "averaged", "best", "latest" or a checkpoint's path,
                which excludes several models; by default the first of these
                three that exists, for each model.
            precision: Dtype of weights and products, one of
                `SEARCH_PRECISIONS`. With bfloat16 translations differ slightly
                from float32.
            shortlist: Whether to use the work directory's shortlist, which
                `kt-shortlist` makes.
            engine: What searches, one of `SEARCH_ENGINES`. "ctranslate2" needs
                the extra of this name. It runs an export in the work directory,
                which is made at the first call; `num_threads` is by default one
                for each core. Options of a `decoding` that is not given follow
                it.
            compute_type: Type in which CTranslate2 computes, one of
                `COMPUTE_TYPES`; by default float32.
            device: Kind of device of CTranslate2, "cpu" or "gpu"; by default
                the fastest that there is.
            **options: Keyword arguments that replace the defaults of
                `Translator`, and `max_source_length`, by default the maximum
                length in training, of several models the smallest.

        Raises:
            ValueError: It is not a work directory, has no checkpoint or
                shortlist that can be read, there is no such precision, several
                models are not an ensemble, or the engine lacks an option.
        """
        if isinstance(workdir, str | os.PathLike):
            workdir = [workdir]
        assemble.check_choice(
            engine,
            compute_type,
            device,
            num_models=len(workdir),
            precision=precision,
            jit_compile=options.get("jit_compile"),
            shortlist=shortlist,
        )
        directories = open_ensemble(workdir, checkpoint)
        first = directories[0]
        configs = [
            d.read_section("model", TransformerConfig) for d in directories
        ]
        if "max_source_length" not in options:
            options["max_source_length"] = min(
                d.read_max_length() for d in directories
            )
        if decoding is None:
            own = first.read_section("decoding", DecodingConfig)
            decoding = assemble.fitted(engine, own)
        assemble.check_search(engine, decoding)
        tokenizer = first.load_tokenizer()
        if shortlist:
            path = first.shortlist_path
            made = f"{path}, which kt-shortlist makes"
            expect(path.exists(), made, "no such file")
            options["shortlist"] = Shortlist.read(path, tokenizer)
        limits = Limits(configs, decoding, options["max_source_length"])
        models, prefixes = assemble.load_models(
            engine,
            directories,
            checkpoint,
            tokenizer,
            limits,
            precision=precision,
            compute_type=compute_type,
            device=device,
            num_threads=options.get("num_threads"),
        )
        if not assemble.runs_keras(engine):
            options["num_threads"] = models[0].num_threads
        _warn_of_shortened_outputs(limits)
        languages = first.read_languages()
        about = About(languages, languages.direction(), tuple(prefixes))
        return cls(tokenizer, models, decoding, about=about, **options)

    @classmethod
    def from_pretrained(
        cls,
        name: str | os.PathLike,
        decoding: DecodingConfig | None = None,
        *,
        source_language: str | None = None,
        target_language: str | None = None,
        precision: str = "float32",
        **options,
    ) -> typing.Self:
        """The translator of a published model, of this or another system.

        Logs known differences from the system that it comes from. To train or
        export a model of another system, import it with `kt-import`.

        Args:
            name: A directory with a model of a system that `kt-import` knows,
                such as OPUS-MT, or a work directory; or `hf://OWNER/NAME`, a
                repository of the Hugging Face Hub that holds one of these, with
                `@REVISION` for a branch, tag or commit. A download is kept: see
                `keras_transformer.hub`.
            decoding: A `DecodingConfig`, by default the model's own.
            source_language, target_language: As in `with_languages`:
                "deu_Latn" in NLLB-200, "de" in M2M-100, "de_DE" in mBART-50.
                Without them, each `Request` to such a model has a direction.
            precision: As in `load`.
            **options: As in `load`; `shortlist` for a work directory only.

        Raises:
            ValueError: There is no such model, or it cannot be used, or
                huggingface_hub is not installed.
            OSError: It cannot be read or downloaded.
        """
        assemble.check_choice("native", "default", None, 1, precision)
        # A shelf: most translators need no importer.
        from keras_transformer.importers import opened

        with opened(name) as (directory, imported):
            if imported is None:
                translator: typing.Any = cls.load(
                    directory, decoding, precision=precision, **options
                )
                return translator.with_languages(
                    source_language, target_language
                )
        for option, default in OF_WORKDIRS.items():
            expect(
                options.pop(option, default) == default,
                f"a work directory, which kt-import makes, for {option}",
                name,
            )
        languages = imported.languages
        about = About(
            languages, languages.direction(source_language, target_language)
        )
        model = imported.make_model(precision)
        options = {"max_source_length": imported.max_length, **options}
        decoding = decoding or imported.decoding
        for note in imported.notes:
            logging.warning("%s: %s", name, note)
        _warn_of_shortened_outputs(
            Limits([model.config], decoding, options["max_source_length"])
        )
        return cls(imported.tokenizer, model, decoding, about=about, **options)


def _warn_of_shortened_outputs(limits):
    """Warns if learned positions limit the length of outputs."""
    shortest = min(
        limits.configs, key=lambda config: config.position_limit or math.inf
    )
    line = shortened_outputs(
        shortest, limits.decoding, limits.max_source_length
    )
    if line:
        logging.warning("%s", line)
