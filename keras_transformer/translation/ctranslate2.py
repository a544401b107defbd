"""CTranslate2 as the engine: it searches an export of a work directory.

With a beam it is our search with `stopping=fairseq`; scores are ours, with any
length penalty. It differs in these ways:

- At the length limit, hypotheses that are not finished rank with the others.
- After a given beginning, only the most probable hypothesis may end at once.
- Where more than W hypotheses have finished when a search ends, all compete.
- It may emit PAD and BOS, which only a model that is hardly trained does.
- A given beginning is shorter than the positions that a model has learned.
- Forbidden phrases leave their probability to the other tokens of a position;
  scores do not.

What it lacks is its column in `abilities`.
"""

import dataclasses
import functools
import importlib.util
import pathlib
import typing
from collections.abc import Sequence

import numpy as np

from keras_transformer.commands.flags import how_to_install
from keras_transformer.config import (
    COMPUTE_TYPES,
    DecodingConfig,
    SearchConfig,
    TransformerConfig,
    aligns_when_read,
    find_alignment_layer,
)
from keras_transformer.files import read_json
from keras_transformer.machine import count_cores
from keras_transformer.refusals import expect
from keras_transformer.tokenization import Tokenizer, TokenizerPair
from keras_transformer.translation.abilities import EngineOptions, check
from keras_transformer.translation.around.words import Words
from keras_transformer.translation.engines import Loaded, column_of
from keras_transformer.translation.exports import exported
from keras_transformer.translation.grouping import few_batches_of
from keras_transformer.translation.limits import Limits
from keras_transformer.translation.requests import Row
from keras_transformer.translation.search import (
    Found,
    Programs,
    Search,
    Setup,
)
from keras_transformer.vocabulary import EOS, UNK
from keras_transformer.workdir import WorkDirectory

if typing.TYPE_CHECKING:
    import ctranslate2

NAME = "ctranslate2"
COLUMN = column_of(NAME)
CONVERSION = "keras_transformer.translation.conversion"  # makes exports
DEVICES = {"cpu": "cpu", "gpu": "cuda"}
# Positions, at least, that an export has room for: few options need another.
SMALLEST_ROOM = 1024
# A length penalty that changes no score. With 0, a search for all hypotheses
# would end when the most probable one has finished.
NO_PENALTY = 1e-30
MISSING = -1e9  # at or below it, there is no such hypothesis


def find_device(device: str | None) -> str:
    """CTranslate2's name of a kind of device; None: the fastest there is."""
    import ctranslate2

    kinds = ["gpu", "cpu"] if ctranslate2.get_cuda_device_count() else ["cpu"]
    if device not in (None, *kinds):
        raise ValueError(
            f"{COLUMN} needs device={' or '.join(kinds)} on this machine."
            f" Received: device={device!r}"
        )
    return DEVICES[device or kinds[0]]


class CTranslate2Limits(Limits):
    """The limits of a search that reads the whole of a given beginning."""

    def prefix_limit(self, source_length: int) -> int:
        """As in `Limits`; BOS has a position, too."""
        limit = self.output_limit(source_length)
        if self.position_limit is None:
            return limit
        return min(limit, self.position_limit - 1)


@dataclasses.dataclass(frozen=True)
class CTranslate2Model:
    """An export in memory, in place of a `Transformer`."""

    config: TransformerConfig  # the `TransformerConfig` of the model
    alignment: tuple[int, int]  # layer and head that align words
    pieces: tuple[list[str], list[str]]  # of source and target, by id
    translator: "ctranslate2.Translator"  # CTranslate2's
    dtype: str  # the type that it computes in
    num_threads: int  # batches that are translated at the same time
    # The longest output in tokens, EOS included, that it has positions for.
    room: int
    adds_eos: bool  # whether sources are given without EOS
    engine: typing.ClassVar = NAME  # what a `Translator` searches with

    @classmethod
    def load(
        cls,
        workdir: WorkDirectory,
        checkpoint: str,
        tokenizer: Tokenizer | TokenizerPair,
        limits: Limits,
        **options: typing.Any,
    ) -> "CTranslate2Model":
        """Opens the export of a checkpoint, and makes it if there is none."""
        [config] = limits.configs
        check(COLUMN, config)
        layer, head = _alignment_of(config, limits.decoding)
        longest = limits.max_target_length + 1  # BOS and a given beginning
        room = max(SMALLEST_ROOM, limits.max_source_length, longest)
        alignment = {"alignment_layer": layer, "alignment_head": head}
        settings = {"num_positions": room + 1, **alignment}
        path = exported(workdir, checkpoint, NAME, settings, CONVERSION)
        return cls.open(path, tokenizer, limits, room, **options)

    @classmethod
    def open(
        cls,
        path: pathlib.Path,
        tokenizer: Tokenizer | TokenizerPair,
        limits: Limits,
        room: int = SMALLEST_ROOM,
        *,
        compute_type: str = "float32",
        device: str | None = "cpu",
        num_threads: int | None = None,
    ) -> "CTranslate2Model":
        """Opens an export with sinusoids for `room` positions, and BOS."""
        import ctranslate2

        [config] = limits.configs
        found = find_device(device)
        threads = num_threads or (count_cores() if found == "cpu" else 1)
        translator = ctranslate2.Translator(
            str(path),
            found,
            compute_type=compute_type,
            inter_threads=threads,
            intra_threads=1,  # they would wait for each other at every layer
        )
        # EOS that the model does not read is not given either.
        adds_eos = read_json(path / "config.json")["add_source_eos"]
        adds_eos = adds_eos or not config.source_eos
        return cls(
            config,
            _alignment_of(config, limits.decoding),
            (tokenizer.source.pieces, tokenizer.target.pieces),
            translator,
            translator.compute_type,
            threads,
            room - 1,
            adds_eos,
        )


class CTranslate2Search:
    """The `Search` of a model."""

    name = NAME

    def __init__(
        self, model: CTranslate2Model, limits: Limits, batch_tokens: int
    ):
        check(COLUMN, limits.decoding)
        alignment = _alignment_of(model.config, limits.decoding)
        if alignment != model.alignment:
            raise ValueError(
                f"{COLUMN} needs alignment_layer and alignment_head as loaded,"
                f" {model.alignment}. Received: {alignment}"
            )
        if limits.max_target_length > model.room:
            raise ValueError(
                f"{COLUMN} needs outputs of at most {model.room} tokens, for"
                " which it was loaded. Received: max_source_length="
                f"{limits.max_source_length} and"
                f" extra_length={limits.decoding.extra_length}"
            )
        self.model, self.limits = model, limits
        self.batch_tokens = batch_tokens
        self._ids = {piece: id for id, piece in enumerate(model.pieces[1])}

    def with_decoding(self, decoding: DecodingConfig) -> "CTranslate2Search":
        limits = dataclasses.replace(self.limits, decoding=decoding)
        return CTranslate2Search(self.model, limits, self.batch_tokens)

    def search(self, rows: Sequence[Row], num_best: int) -> list[Found]:
        limits = [self.limits.output_limit(len(r.source_ids) - 1) for r in rows]
        results = [Found([[]], np.zeros(1)) for _ in rows]
        given = self._given_log_probs(rows)
        # Rows with a prefix have batches of their own, and so have rows with
        # the same forbidden phrases: a batch has one list of them.
        again: dict[tuple, list[int]] = {}
        for i, row in enumerate(rows):
            if len(row.source_ids) > 1:
                key = 0, bool(row.target_ids), row.forbidden
                again.setdefault(key, []).append(i)
        while again:
            batches = [
                [group[i] for i in batch]
                for group in again.values()
                for batch in self._batches(
                    [len(rows[i].source_ids) for i in group]
                )
            ]
            again = {}
            longest = [max(limits[i] for i in batch) for batch in batches]
            calls = self._calls(rows, batches, self._search_call, longest)
            for (i, found), limit in calls:
                if limits[i] < limit and limits[i] <= max(
                    map(len, found.hypotheses)
                ):  # the search has gone beyond the limit of this row
                    row = rows[i]
                    key = limits[i], bool(row.target_ids), row.forbidden
                    again.setdefault(key, []).append(i)
                    continue
                results[i] = self._ranked(rows[i], found, given.get(i, 0.0))
        for i, found in self._scored_anew(rows, results):
            results[i] = found
        return [
            Found(found.ids[:num_best], found.scores[:num_best])
            for found in results
        ]

    def programs(self, num_best: int, given: Sequence[int] = ()) -> Programs:
        """A search: nothing is compiled, but the weights are then in memory."""
        row = Row([UNK, EOS], target_ids=given, num_given=len(given))
        make = functools.partial(self.search, [row], num_best)
        return Programs([(2, make)], [])

    def score(self, rows: Sequence[Row]) -> list[np.ndarray]:
        """The log-probabilities of the whole `target_ids` of each row."""
        found = self._of_pairs(rows, self._score_call)
        return [np.array(result.log_probs) for result in found]

    def attention(self, rows: Sequence[Row]) -> list[np.ndarray]:
        """The attention of whole `target_ids`, as `Inference.alignment_ids`."""
        first = int(aligns_when_read(self.model.config, self.limits.decoding))
        results = []
        found = self._of_pairs(rows, self._attention_call)
        for row, result in zip(rows, found, strict=True):
            shape = len(row.target_ids) - 1, len(row.source_ids)
            attention = np.zeros(shape, np.float32)
            weights = result.attention[0][first:][: len(attention)]
            if weights and weights[0]:  # not of a blank source
                attention[:, : len(weights[0])] = weights
            results.append(attention)
        return results

    # Calls of CTranslate2

    def _batches(self, lengths):
        threads = self.model.num_threads
        return few_batches_of(lengths, self.batch_tokens, threads)

    def _calls(self, rows, batches, call, limits):
        """Yields index and result of each row of batches, and their limit."""
        pairs = [*zip(batches, limits, strict=True)][::-1]  # the longest first
        called = [call([rows[i] for i in batch], n) for batch, n in pairs]
        for (batch, limit), futures in zip(pairs, called, strict=True):
            for i, future in zip(batch, futures, strict=True):
                yield (i, future.result()), limit

    def _of_pairs(self, rows, call):
        """The result of each row with whole `target_ids`."""
        lengths = [max(len(r.source_ids), len(r.target_ids)) for r in rows]
        batches = self._batches(lengths)
        limits = [max(len(rows[i].target_ids) for i in b) for b in batches]
        found = dict(one for one, _ in self._calls(rows, batches, call, limits))
        return [found[i] for i in range(len(rows))]

    def _search_call(self, rows, limit):
        """Searches for the outputs of rows, all with given tokens or none."""
        beam_size = self.limits.decoding.beam_size
        return self._translate(
            rows,
            [row.target_ids for row in rows],
            beam_size=beam_size,
            num_hypotheses=beam_size,
            length_penalty=self._penalty(rows[0]),
            max_decoding_length=limit,
            return_scores=True,
            suppress_sequences=self._targets(rows[0].forbidden) or None,
        )

    def _attention_call(self, rows, limit):
        """Forces the targets; the step after the last token reads it."""
        return self._translate(
            rows,
            [row.target_ids[:-1] for row in rows],
            beam_size=1,
            max_decoding_length=limit,
            return_attention=True,
        )

    def _score_call(self, rows, limit):
        return self.model.translator.score_batch(
            self._sources(rows),
            self._targets(row.target_ids[:-1] for row in rows),
            max_input_length=0,
            asynchronous=True,
        )

    def _translate(self, rows, targets, **options):
        return self.model.translator.translate_batch(
            self._sources(rows),
            self._targets(targets),
            max_input_length=0,
            min_decoding_length=0,
            return_end_token=True,
            asynchronous=True,
            **options,
        )

    def _sources(self, rows):
        end = -1 if self.model.adds_eos else None
        pieces, _ = self.model.pieces
        return [[pieces[id] for id in row.source_ids[:end]] for row in rows]

    def _targets(self, targets):
        _, pieces = self.model.pieces
        return [[pieces[id] for id in ids] for ids in targets]

    # Scores

    def _given_log_probs(self, rows):
        """The log-probability of the prefix of each row that has one."""
        own = {
            i: row._replace(target_ids=[*row.target_ids, EOS])
            for i, row in enumerate(rows)
            if len(row.target_ids) > row.num_given and len(row.source_ids) > 1
        }
        found = zip(own.items(), self.score([*own.values()]), strict=True)
        return {i: x[row.num_given : -1].sum() for (i, row), x in found}

    def _scored_anew(self, rows, results):
        """Yields index and `Found` of each row with forbidden phrases.

        CTranslate2 scores by the probabilities among the tokens that are left.
        """
        found = iter(
            self.score(
                [
                    row._replace(target_ids=[*ids, EOS])
                    for row, result in zip(rows, results, strict=True)
                    for ids in result.ids
                    if row.forbidden
                ]
            )
        )
        for i, row in enumerate(rows):
            if row.forbidden:
                ids = results[i].ids
                log_probs = [
                    next(found)[row.num_given : len(one)].sum() for one in ids
                ]
                yield i, self._best_first(ids, log_probs)

    def _penalty(self, row):
        """The length penalty by which CTranslate2 ranks hypotheses.

        Its search does not depend on it, nor does it score given tokens.
        """
        decoding = self.limits.decoding
        if decoding.length_normalization != "power" or row.target_ids:
            return NO_PENALTY
        return decoding.length_penalty or NO_PENALTY

    def _ranked(self, row, found, given):
        """The hypotheses by our scores; `given` is a prefix's probability."""
        penalty, ids, log_probs = self._penalty(row), [], []
        for pieces, score in zip(found.hypotheses, found.scores, strict=True):
            log_prob = score * max(1, len(pieces)) ** penalty
            if log_prob >= MISSING or not ids:
                ids.append([self._ids[piece] for piece in pieces])
                log_probs.append(log_prob + given)
        return self._best_first(ids, log_probs)

    def _best_first(self, ids, log_probs):
        """`Found` of outputs with these log-probabilities."""
        decoding = self.limits.decoding
        penalties = [decoding.penalty(max(1, len(one))) for one in ids]
        scores = np.array(log_probs) / np.array(penalties)
        order = np.argsort(-scores, kind="stable")
        return Found([ids[i] for i in order], scores[order])


class CTranslate2:
    """The engine; methods as in `Engine`."""

    name = NAME
    needs_keras = False

    def check_machine(self, options: EngineOptions) -> None:
        """Raises ValueError without the extra, the device or the type."""
        expect(
            importlib.util.find_spec(NAME),
            f"the extra {NAME!r} for {COLUMN}: {how_to_install(NAME)}",
        )
        import ctranslate2

        device = find_device(options.device)
        found = ctranslate2.get_supported_compute_types(device)
        expect(
            options.compute_type in {"default", *found} & {*COMPUTE_TYPES},
            "compute_type=default, or one of the device's:"
            f" {', '.join(sorted(found))}",
            compute_type=options.compute_type,
        )

    def load(
        self,
        directories: Sequence[WorkDirectory],
        checkpoint: str | None,
        tokenizer: Tokenizer | TokenizerPair,
        limits: Limits,
        options: EngineOptions,
        num_threads: int | None,
    ) -> Loaded:
        [directory] = directories
        prefix = directory.choose_checkpoint(checkpoint)
        model = CTranslate2Model.load(
            directory,
            prefix,
            tokenizer,
            limits,
            compute_type=options.compute_type,
            device=options.device,
            num_threads=num_threads,
        )
        return Loaded([model], [prefix], model.num_threads)

    def make_search(self, setup: Setup) -> Search:
        [model] = setup.models
        limits = CTranslate2Limits(
            setup.configs, setup.decoding, setup.max_source_length
        )
        search = CTranslate2Search(model, limits, setup.batch_tokens)
        return Words(search)


ENGINE = CTranslate2()


def _alignment_of(
    config: TransformerConfig, decoding: SearchConfig
) -> tuple[int, int]:
    """Layer and head of the attention that aligns words."""
    return find_alignment_layer(config, decoding), decoding.alignment_head
