"""The models of a server, and the language pairs that they translate."""

import dataclasses
import functools
import typing
from collections.abc import Callable, Mapping, Sequence

from absl import logging

from keras_transformer.base.refusals import expect
from keras_transformer.commands import flags
from keras_transformer.commands.startup import load
from keras_transformer.config import DecodingConfig
from keras_transformer.data.languages import Direction, Languages
from keras_transformer.storage.adapters import SwitchedAdapters, read_factors
from keras_transformer.storage.card import describe
from keras_transformer.storage.checkpoints import Checkpoint
from keras_transformer.storage.workdir import WorkDirectory
from keras_transformer.translation import abilities, engines
from keras_transformer.translation.requests import Request
from trainers.translating.lines import open_translator
from trainers.translating.options import (
    TranslatorChoice,
    TranslatorOptions,
    join_workdirs,
)

if typing.TYPE_CHECKING:
    from keras_transformer.confidence.assessment import Assessor
    from keras_transformer.translator import Translator

# A ready server has the programs for sources of at most this many tokens. Those
# for longer sources may still be missing.
USUAL_TOKENS = 64
Step = Callable[[], object]  # a step of the warm-up


class Model:
    """A translator of one direction or many, with any search options.

    The programs of `max_searches` other search options stay in memory.

    Its cards are those of its work directories, as Markdown.

    Attributes:
        assessor: The `Assessor` of a calibrated model, or None.
    """

    assessor: "Assessor | None" = None

    def __init__(
        self,
        translator: "Translator",
        max_searches: int,
        cards: Sequence[str] = (),
    ):
        self.translator, self.cards = translator, cards
        self.switched: SwitchedAdapters | None = None
        self._with_decoding = functools.lru_cache(max_searches)(
            lambda decoding: translator.with_decoding(
                **dataclasses.asdict(decoding)
            )
        )

    def translator_for(self, decoding: DecodingConfig) -> "Translator":
        """Returns the translator with certain search options."""
        if decoding == self.translator.decoding:
            return self.translator
        return self._with_decoding(decoding)

    def warm_up_steps(self) -> tuple[Sequence[Step], ...]:
        """Returns three lists of functions, each of which makes a program.

        The first list is for usual sentences, including the details and
        alternatives that the page asks for. The second is for long sentences.
        The third compiles searches of a single sentence.
        """
        translator = self.translator
        languages = translator.languages
        direction = languages.direction(*languages.pairs[0])
        request = Request("a", direction=direction)
        usual: list[Step] = []
        late: list[Step] = []
        single: list[Step] = []
        for num_best in sorted({1, translator.decoding.num_hypotheses}):
            for step in translator.programs(num_best):
                if not step.is_single:
                    kind = late if step.longest > USUAL_TOKENS else usual
                    kind.append(step.make)
                elif num_best == 1:
                    single.append(step.make)
        usual += [
            functools.partial(translator.read, [(request, "a")]),
            functools.partial(translator.align, [(request, "a")]),
        ]
        return usual, late, single

    def use(self, adapter: str) -> None:
        """Switches to an adapter, or to none if it is "".

        Only the thread that computes may call this.
        """
        if self.switched is not None:
            self.switched.use(adapter)


@dataclasses.dataclass(frozen=True, eq=False)
class Pair:
    """A language pair.

    Attributes:
        source, target: The codes of its languages.
        model: Its model. Pairs with the same model share batches.
        direction: The tokens that tell the model these languages, or None if
            the text begins with a tag.
    """

    source: str
    target: str
    model: Model
    direction: Direction | None

    @property
    def is_same(self) -> bool:
        """Whether its texts are already in the target language."""
        return self.source == self.target

    @property
    def translator(self) -> "Translator":
        """The model's translator, set to this pair if it is multilingual."""
        languages = self.model.translator.languages
        if not languages.language_tokens and not languages.tags:
            return self.model.translator
        return self.model.translator.with_languages(self.source, self.target)


def load_pairs(
    options: TranslatorOptions,
    search: Mapping[str, typing.Any],
    max_searches: int,
    adapters: Sequence[tuple[str, str]] = (),
    glossaries: str | None = None,
) -> list[Pair]:
    """Loads the models of work directories, and returns their pairs.

    Work directories with the same languages form an ensemble. A multilingual
    model has a pair for each of its directions. Raises CommandError for bad
    input.

    Args:
        options: The work directories.
        search: Fields of `DecodingConfig` that override the work directories'.
        max_searches: As for `Model`.
        adapters: The name and the work directory of each adapter.
        glossaries: Their directory; the engine must be able to use them.
    """
    pairs: dict[tuple[str, str], Pair] = {}
    models: dict[Languages, list[str]] = {}
    for path in options.workdirs:
        with flags.user_errors():
            languages = WorkDirectory(path).read_languages()
        models.setdefault(languages, []).append(path)
    choice = TranslatorChoice(options, search, languages=None)
    choices = [choice.at(join_workdirs(paths)) for paths in models.values()]
    with flags.user_errors():
        for one in choices:  # checks all before loading the first
            one.check()
        column = engines.column_of(options.engine)
        abilities.check_value(column, "adapter", adapters)
        abilities.check_value(column, "glossary", glossaries)
        for _, path in adapters:
            WorkDirectory(path).need_base("adapter")
            WorkDirectory(path).check_checkpoint(None)
        expect(
            not adapters or len(options.workdirs) == 1,
            "one work directory with adapter",
            f"workdir={options.workdir}",
        )
    for languages, one in zip(models, choices, strict=True):
        if len(one.options.workdirs) > 1:
            logging.info("an ensemble: %s", one.options.workdir)
        directories = map(WorkDirectory, one.options.workdirs)
        with flags.user_errors():
            cards = list(map(describe, directories))
        model = Model(open_translator(one), max_searches, cards)
        with flags.user_errors():
            model.assessor = load(
                "keras_transformer.confidence.assessment"
            ).Assessor.find(model.translator)
        if adapters:
            with flags.user_errors():
                model.switched = _open_adapters(model.translator, adapters)
        for codes in languages.pairs:
            source, target = codes[0] or "source", codes[1] or "target"
            expect(
                (source, target) not in pairs,
                f"one work directory for {source}-{target}",
                f"workdir={options.workdir}",
                error=flags.CommandError,
            )
            direction = languages.direction(*codes)
            pairs[source, target] = Pair(source, target, model, direction)
    return list(pairs.values())


def _open_adapters(translator, adapters):
    [own] = translator.checkpoints
    weights, found = Checkpoint(own), {}
    for name, path in adapters:
        workdir = WorkDirectory(path)
        base = workdir.need_base("adapter")
        expect(
            base.sha256 == weights.weights_sha256,
            f"adapters of {own}",
            f"{name}={path}, of {base.checkpoint}",
        )
        found[name] = read_factors(workdir.choose_checkpoint(), weights)
    return SwitchedAdapters(translator.model, found)
