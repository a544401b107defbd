"""The engine CTranslate2, which searches an export of a work directory.

With a beam it searches as the native engine does with `stopping=fairseq`.
Scores are computed as there, with any length penalty. It differs in these ways:

- At the length limit, unfinished hypotheses rank with the others.
- After a prefix, only the most probable hypothesis may end at once.
- If more than W hypotheses have finished when a search ends, all compete.
- It may emit PAD and BOS, but only with a model that is hardly trained.
- A prefix is shorter than the learned positions of a model.
- In the search, the probability of forbidden tokens is redistributed to the
  other tokens of the position; in scores it is not.

Its column in `abilities` tells what it supports.
"""

import dataclasses
import functools
import importlib.util
import pathlib
import typing
from collections.abc import Sequence

import numpy as np

from keras_transformer.base.files import read_json
from keras_transformer.base.machine import count_cores
from keras_transformer.base.refusals import expect
from keras_transformer.commands.flags import how_to_install
from keras_transformer.config import (
    COMPUTE_TYPES,
    DecodingConfig,
    SearchConfig,
    TransformerConfig,
    aligns_when_read,
    find_alignment_layer,
)
from keras_transformer.text.tokenization import Tokenizer, TokenizerPair
from keras_transformer.text.vocabulary import EOS, UNK
from keras_transformer.translation.abilities import EngineOptions, check
from keras_transformer.translation.around.words import Words
from keras_transformer.translation.engines import Loaded, Opened, column_of
from keras_transformer.translation.exports import exported
from keras_transformer.translation.grouping import few_batches_of
from keras_transformer.translation.limits import Limits
from keras_transformer.translation.requests import Row
from keras_transformer.translation.search import (
    Found,
    Search,
    Setup,
    Step,
    Steps,
)

if typing.TYPE_CHECKING:
    import ctranslate2

NAME = "ctranslate2"
NEEDS_KERAS = False
COLUMN = column_of(NAME)
CONVERSION = "keras_transformer.translation.conversion"  # makes exports
DEVICES = {"cpu": "cpu", "gpu": "cuda"}
# Minimum number of positions in an export. Few options need more, so most share
# one export.
SMALLEST_ROOM = 1024
# A length penalty that changes no score. With 0, a search for all hypotheses
# would end when the most probable one has finished.
NO_PENALTY = 1e-30
LARGEST_LOGITS = 1 << 25  # maximum number of logits in the results of a batch
MISSING = -1e9  # a lower log-probability means that there is no hypothesis


def find_device(device: str | None) -> str:
    """Returns CTranslate2's name of a device, of the fastest one for None.

    Raises ValueError if the machine has no such device.
    """
    import ctranslate2

    kinds = ["gpu", "cpu"] if ctranslate2.get_cuda_device_count() else ["cpu"]
    expect(
        device in (None, *kinds),
        f"device={' or '.join(kinds)} for {COLUMN} on this machine",
        f"{device=}",
    )
    return DEVICES[device or kinds[0]]


class CTranslate2Limits(Limits):
    """The limits of a search that reads the whole prefix before it emits."""

    def prefix_limit(self, source_length: int) -> int:
        """Computes the limit as `Limits` does, less the position of BOS."""
        limit = self.output_limit(source_length)
        if self.position_limit is None:
            return limit
        return min(limit, self.position_limit - 1)


@dataclasses.dataclass(frozen=True)
class CTranslate2Model:
    """An export in memory, in place of a `Transformer`."""

    config: TransformerConfig
    alignment: tuple[int, int]  # layer and head that align words
    pieces: tuple[list[str], list[str]]  # of source and target, by id
    translator: "ctranslate2.Translator"
    num_threads: int  # number of batches translated in parallel
    # Length in tokens, EOS included, of the longest output it has positions for
    room: int
    adds_eos: bool  # whether sources are passed without EOS
    engine: typing.ClassVar = NAME  # the engine of its `Translator`

    @property
    def dtype(self) -> str:
        """The type in which CTranslate2 computes."""
        return self.translator.compute_type

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
    ) -> typing.Self:
        """Opens an export that has positions for BOS and `room` tokens."""
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
        adds_eos = read_json(path / "config.json")["add_source_eos"]
        return cls(
            config,
            _alignment_of(config, limits.decoding),
            (tokenizer.source.pieces, tokenizer.target.pieces),
            translator,
            threads,
            room - 1,
            # If the model reads no EOS, it is not passed either.
            adds_eos or not config.source_eos,
        )


class CTranslate2Search:
    """The `Search` of a `CTranslate2Model`."""

    name = NAME

    def __init__(
        self, model: CTranslate2Model, limits: Limits, batch_tokens: int
    ):
        check(COLUMN, limits.decoding)
        alignment = _alignment_of(model.config, limits.decoding)
        expect(
            alignment == model.alignment,
            f"alignment_layer and alignment_head of {COLUMN} as loaded,"
            f" {model.alignment}",
            alignment,
        )
        expect(
            limits.max_target_length <= model.room,
            f"outputs of at most {model.room} tokens, for which {COLUMN} was"
            " loaded",
            max_source_length=limits.max_source_length,
            extra_length=limits.decoding.extra_length,
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
        left = [i for i, row in enumerate(rows) if len(row.source_ids) > 1]
        # A batch has one length limit. Rows that exceed their own limit are
        # searched again, in batches with the same limit.
        for own_limits in ([0] * len(rows), limits):
            batches = self._batches_alike(rows, left, own_limits)
            left = []
            for i, found, limit in self._calls(
                rows, batches, self._search_call, limits
            ):
                longest = max(map(len, found.hypotheses))
                if limits[i] < limit and limits[i] <= longest:
                    left.append(i)
                else:
                    results[i] = self._ranked(rows[i], found, given.get(i, 0.0))
        self._score_anew(rows, results)
        return [
            Found(found.ids[:num_best], found.scores[:num_best])
            for found in results
        ]

    def programs(self, num_best: int, given: Sequence[int] = ()) -> Steps:
        """Yields one search, which loads the weights. It compiles nothing."""
        row = Row([UNK, EOS], target_ids=given, num_given=len(given))
        yield Step(2, functools.partial(self.search, [row], num_best))

    def score(self, rows: Sequence[Row]) -> list[np.ndarray]:
        found = self._of_pairs(rows, self._score_call)
        return [np.array(result.log_probs) for result in found]

    def attention(self, rows: Sequence[Row]) -> list[np.ndarray]:
        found = self._of_pairs(rows, self._attention_call)
        return [
            self._attention(row, result)
            for row, result in zip(rows, found, strict=True)
        ]

    def read(self, rows: Sequence[Row]) -> list[tuple[np.ndarray, np.ndarray]]:
        call = functools.partial(self._attention_call, logits=True)
        most = LARGEST_LOGITS // len(self.model.pieces[1])
        found = self._of_pairs(rows, call, most)
        return [
            (
                _log_probs(row, result)
                if result.logits
                else self.score([row])[0],  # of a blank source
                self._attention(row, result),
            )
            for row, result in zip(rows, found, strict=True)
        ]

    def _attention(self, row, result):
        """Makes the attention of a row from the result of its call."""
        first = int(aligns_when_read(self.model.config, self.limits.decoding))
        shape = len(row.target_ids) - 1, len(row.source_ids)
        attention = np.zeros(shape, np.float32)
        weights = result.attention[0][first:][: len(attention)]
        if weights and weights[0]:  # not of a blank source
            attention[:, : len(weights[0])] = weights
        return attention

    # Calls of CTranslate2

    def _batches(self, lengths, most=None):
        threads = self.model.num_threads
        most = min(most or self.batch_tokens, self.batch_tokens)
        return few_batches_of(lengths, most, threads)

    def _batches_alike(self, rows, indices, limits):
        """Batches the rows at `indices` that may share a call of CTranslate2.

        The rows of a batch have the same limit and the same forbidden phrases,
        and either all of them have a prefix or none has.
        """
        groups: dict[tuple, list[int]] = {}
        for i in indices:
            key = limits[i], bool(rows[i].target_ids), rows[i].forbidden
            groups.setdefault(key, []).append(i)
        return [
            [group[i] for i in batch]
            for group in groups.values()
            for batch in self._batches([len(rows[i].source_ids) for i in group])
        ]

    def _calls(self, rows, batches, call, limits):
        """Yields for each row its index, its result and its batch's limit."""
        batches = batches[::-1]  # the longest first
        longest = [max(limits[i] for i in batch) for batch in batches]
        called = [
            call([rows[i] for i in batch], limit)
            for batch, limit in zip(batches, longest, strict=True)
        ]
        for batch, limit, futures in zip(batches, longest, called, strict=True):
            for i, future in zip(batch, futures, strict=True):
                yield i, future.result(), limit

    def _of_pairs(self, rows, call, most=None):
        """Runs a call with whole `target_ids`; returns a result per row.

        A batch has at most `most` tokens, by default `batch_tokens`.
        """
        limits = [len(row.target_ids) for row in rows]
        lengths = [
            max(len(row.source_ids), len(row.target_ids)) for row in rows
        ]
        batches = self._batches(lengths, most)
        calls = self._calls(rows, batches, call, limits)
        found = {i: result for i, result, _ in calls}
        return [found[i] for i in range(len(rows))]

    def _search_call(self, rows, limit):
        """Searches for the outputs of rows from `_batches_alike`."""
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

    def _attention_call(self, rows, limit, logits=False):
        """Forces targets without EOS; one more step reads the last token."""
        return self._translate(
            rows,
            [row.target_ids[:-1] for row in rows],
            beam_size=1,
            max_decoding_length=limit,
            return_attention=True,
            return_logits_vocab=logits,
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
        """Computes the log-probability of each prefix, by index of its row."""
        own = {
            i: row._replace(target_ids=[*row.target_ids, EOS])
            for i, row in enumerate(rows)
            if len(row.target_ids) > row.num_given and len(row.source_ids) > 1
        }
        found = self.score([*own.values()])
        return {
            i: log_probs[rows[i].num_given : -1].sum()
            for i, log_probs in zip(own, found, strict=True)
        }

    def _score_anew(self, rows, results):
        """Replaces the scores of rows with forbidden phrases.

        CTranslate2 normalizes probabilities over the allowed tokens only.
        """
        again = [i for i, row in enumerate(rows) if row.forbidden]
        found = iter(
            self.score(
                [
                    rows[i]._replace(target_ids=[*ids, EOS])
                    for i in again
                    for ids in results[i].ids
                ]
            )
        )
        for i in again:
            ids, first = results[i].ids, rows[i].num_given
            log_probs = [next(found)[first : len(one)].sum() for one in ids]
            results[i] = self._best_first(ids, log_probs)

    def _penalty(self, row):
        """Returns the length penalty for CTranslate2's ranking of hypotheses.

        It does not affect the search. With a prefix none is used, since
        CTranslate2 does not score prefixes.
        """
        decoding = self.limits.decoding
        if decoding.length_normalization != "power" or row.target_ids:
            return NO_PENALTY
        return decoding.length_penalty or NO_PENALTY

    def _ranked(self, row, found, given):
        """Ranks hypotheses by our scores, plus `given` for the prefix."""
        penalty, ids, log_probs = self._penalty(row), [], []
        for pieces, score in zip(found.hypotheses, found.scores, strict=True):
            log_prob = score * max(1, len(pieces)) ** penalty
            if log_prob >= MISSING or not ids:
                ids.append([self._ids[piece] for piece in pieces])
                log_probs.append(log_prob + given)
        return self._best_first(ids, log_probs)

    def _best_first(self, ids, log_probs):
        """Sorts outputs by the scores that their log-probabilities give."""
        decoding = self.limits.decoding
        penalties = [decoding.penalty(max(1, len(one))) for one in ids]
        scores = np.array(log_probs) / np.array(penalties)
        order = np.argsort(-scores, kind="stable")
        return Found([ids[i] for i in order], scores[order])


def _log_probs(row, result):
    """Computes the log-probability of each token of a forced target."""
    steps = result.logits[0][: len(row.target_ids)]
    logits = np.array([np.array(step) for step in steps])  # [T, V]
    highest = logits.max(axis=1)
    sums = np.exp(logits - highest[:, None]).sum(axis=1)
    chosen = logits[np.arange(len(logits)), row.target_ids]
    return chosen - highest - np.log(sums)


def check_machine(options: EngineOptions) -> None:
    """Raises ValueError if the extra, the device or the type is missing."""
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


def load(opened: Opened) -> Loaded:
    """Opens the export of a checkpoint, and makes it if necessary."""
    [directory], limits = opened.directories, opened.limits
    [config], options = limits.configs, opened.options
    prefix = directory.choose_checkpoint(opened.checkpoint)
    check(COLUMN, config)
    longest = limits.max_target_length + 1  # BOS and a prefix
    room = max(SMALLEST_ROOM, limits.max_source_length, longest)
    layer, head = _alignment_of(config, limits.decoding)
    alignment = {"alignment_layer": layer, "alignment_head": head}
    settings = {"num_positions": room + 1, **alignment}
    model = CTranslate2Model.open(
        exported(directory, prefix, NAME, settings, CONVERSION),
        opened.tokenizer,
        limits,
        room,
        compute_type=options.compute_type,
        device=options.device,
        num_threads=opened.num_threads,
    )
    return Loaded([model], [prefix], model.num_threads)


def make_search(setup: Setup) -> Search:
    """Makes the search of an export, wrapped to avoid forbidden words."""
    [model] = setup.models
    limits = CTranslate2Limits(
        setup.configs, setup.decoding, setup.max_source_length
    )
    return Words(CTranslate2Search(model, limits, setup.batch_tokens))


def _alignment_of(
    config: TransformerConfig, decoding: SearchConfig
) -> tuple[int, int]:
    """Returns the decoder layer and head whose attention aligns words."""
    return find_alignment_layer(config, decoding), decoding.alignment_head
