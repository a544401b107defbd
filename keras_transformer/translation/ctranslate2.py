"""CTranslate2 as the engine: it searches an export of a work directory.

The search is CTranslate2's own. With a beam it is ours with `stopping=fairseq`;
scores are ours, with any length penalty. It differs in three ways:

- At the length limit, hypotheses that are not finished rank with the others.
- After a given beginning, only the most probable hypothesis may end at once.
- Where more than W hypotheses have finished when a search ends, all compete.

`HAS`, `NEEDS` and `WITHOUT_EFFECT` have all options of a search: what is in
none of them must have its default.
"""

import dataclasses
import functools
import importlib.util
import typing
from collections.abc import Callable, Sequence

import numpy as np

from keras_transformer.commands.flags import how_to_install
from keras_transformer.config import (
    COMPUTE_TYPES,
    SearchConfig,
    TransformerConfig,
    aligns_when_read,
    find_alignment_layer,
)
from keras_transformer.machine import count_cores
from keras_transformer.tokenization import Tokenizer, TokenizerPair
from keras_transformer.translation.exports import exported
from keras_transformer.translation.grouping import batches_of
from keras_transformer.translation.limits import Limits
from keras_transformer.translation.requests import Request, Row
from keras_transformer.vocabulary import EOS, UNK
from keras_transformer.workdir import WorkDirectory

if typing.TYPE_CHECKING:
    import ctranslate2

NAME = "ctranslate2"
ENGINE = f"engine={NAME}"
DEVICES = {"cpu": "cpu", "gpu": "cuda"}
# Positions, at least, that an export has room for: few options need another.
SMALLEST_ROOM = 1024
# A length penalty that changes no score. With 0, a search for all hypotheses
# would end when the most probable one has finished.
NO_PENALTY = 1e-30
MISSING = -1e9  # at most the log-probability of a hypothesis that is none

HAS = {
    "beam_size",
    "length_penalty",
    "length_normalization",
    "extra_length",
    "max_output_length",
    "alignment_layer",
    "alignment_head",
}
# The values that these must have: its rules differ, or it has none.
NEEDS: dict[str, tuple] = {
    "stopping": ("fairseq",),  # with a beam
    "min_length": (0, 1),
    "no_repeat_ngram": (0,),
    "sampling": (False,),  # its samples depend on other sentences
}
# Options of what it does not have: ensembles, terms, and sampling.
WITHOUT_EFFECT = {
    "ensemble",
    "glossary_mode",
    "glossary_bonus",
    "num_samples",
    "temperature",
    "top_k",
    "top_p",
    "epsilon",
    "consensus",
}
# The fields of a `Request` that it has; others must have their default.
HAS_OF_REQUESTS = {"text", "prefix", "seed"}


def check_search(decoding: SearchConfig) -> None:
    """Raises ValueError for a search that CTranslate2 does not have."""
    for field in dataclasses.fields(decoding):
        name, value = field.name, getattr(decoding, field.name)
        if name in HAS or name in WITHOUT_EFFECT:
            continue
        if name == "stopping" and decoding.beam_size == 1:
            continue  # greedy search has no rule
        values = NEEDS.get(name, (field.default,))
        if value not in values:
            raise ValueError(
                f"{ENGINE} needs {name}={' or '.join(map(str, values))}."
                f" Received: {name}={value!r}"
            )


def check_request(request: Request) -> None:
    """Raises ValueError for what CTranslate2 does not have in a sentence."""
    for field in dataclasses.fields(request):
        value = getattr(request, field.name)
        if field.name not in HAS_OF_REQUESTS and value != field.default:
            raise ValueError(
                f"{ENGINE} has no {field.name} of a sentence. Received:"
                f" {field.name}={value!r}"
            )


def check_options(
    workdirs: Sequence[object],
    *,
    precision: str = "float32",
    jit_compile: bool = False,
    shortlist: bool = False,
    compute_type: str = "default",
    device: str | None = None,
) -> None:
    """Raises ValueError for options of other engines, or if it is missing."""
    if importlib.util.find_spec(NAME) is None:
        raise ValueError(
            f"{ENGINE} needs the extra {NAME!r}: {how_to_install(NAME)}"
        )
    if len(workdirs) > 1:
        raise ValueError(
            f"{ENGINE} has no ensembles. Received: {len(workdirs)} models"
        )
    for name, value, instead in (
        ("precision", precision != "float32" and precision, "compute_type"),
        ("jit_compile", jit_compile, "no compiler"),
        ("shortlist", shortlist, "the whole vocabulary"),
    ):
        if value:
            raise ValueError(
                f"{ENGINE} has {instead} instead of {name}. Received:"
                f" {name}={value!r}"
            )
    if device is not None and device not in DEVICES:
        raise ValueError(
            f"{ENGINE} needs device={' or '.join(DEVICES)}. Received:"
            f" device={device!r}"
        )
    if compute_type not in COMPUTE_TYPES:
        raise ValueError(
            f"compute_type must be one of {', '.join(COMPUTE_TYPES)}."
            f" Received: compute_type={compute_type!r}"
        )
    device = find_device(device)
    import ctranslate2

    types = ctranslate2.get_supported_compute_types(device)
    if compute_type not in ("default", *types):
        raise ValueError(
            f"compute_type must be one that {device} computes in:"
            f" {', '.join(sorted({*types} & {*COMPUTE_TYPES}))}. Received:"
            f" compute_type={compute_type!r}"
        )


def find_device(device: str | None) -> str:
    """CTranslate2's name of a kind of device; None: the fastest there is."""
    import ctranslate2

    has_gpu = ctranslate2.get_cuda_device_count() > 0
    if device == "gpu" and not has_gpu:
        raise ValueError(f"{ENGINE} finds no GPU. Received: device='gpu'")
    return DEVICES[device or ("gpu" if has_gpu else "cpu")]


class CTranslate2Model:
    """An export in memory, in place of a `Transformer`.

    Attributes:
        config: The `TransformerConfig` of the model.
        dtype: The type that CTranslate2 computes in.
        room: Maximum length of an output in tokens, EOS included.
        num_threads: Batches that are translated at the same time.
        translator: CTranslate2's.
    """

    def __init__(
        self,
        config: TransformerConfig,
        alignment: tuple[int, int],
        room: int,
        tokenizer: Tokenizer | TokenizerPair,
        translator: "ctranslate2.Translator",
        num_threads: int,
    ):
        self.config = config
        self.alignment = alignment
        self.room = room
        self.source_pieces = tokenizer.source.pieces
        self.target_pieces = tokenizer.target.pieces
        self.ids = {piece: i for i, piece in enumerate(self.target_pieces)}
        self.translator = translator
        self.dtype = translator.compute_type
        self.num_threads = num_threads

    @classmethod
    def load(
        cls,
        workdir: WorkDirectory,
        checkpoint: str,
        tokenizer: Tokenizer | TokenizerPair,
        limits: Limits,
        *,
        compute_type: str = "default",
        device: str | None = None,
        num_threads: int | None = None,
    ) -> "CTranslate2Model":
        """Loads the export of a checkpoint, which it makes if there is none.

        Raises:
            ValueError: It cannot be made.
        """
        import ctranslate2

        [config] = limits.configs
        room = max(SMALLEST_ROOM, limits.max_target_length)
        alignment = _alignment_of(config, limits.decoding)
        path = exported(
            workdir,
            checkpoint,
            NAME,
            {
                "alignment_layer": alignment[0],
                "alignment_head": alignment[1],
                "no_repeat_ngram": 0,
                "max_source_length": limits.max_source_length,
                "extra_length": room - limits.max_source_length,
            },
        )
        found = find_device(device)
        threads = num_threads or (count_cores() if found == "cpu" else 1)
        translator = ctranslate2.Translator(
            str(path),
            found,
            compute_type=compute_type,
            inter_threads=threads,
            intra_threads=1,  # they would wait for each other at every layer
        )
        return cls(config, alignment, room, tokenizer, translator, threads)


class CTranslate2Search:
    """The search of a model: the methods of `BatchedInference`."""

    def __init__(
        self, model: CTranslate2Model, limits: Limits, batch_tokens: int
    ):
        decoding = limits.decoding
        check_search(decoding)
        alignment = _alignment_of(model.config, decoding)
        if alignment != model.alignment:
            raise ValueError(
                f"{ENGINE} aligns by the layer and the head that were chosen"
                f" when it was loaded, {model.alignment}. Received:"
                f" alignment_layer={alignment[0]}, alignment_head="
                f"{alignment[1]}"
            )
        if limits.max_target_length > model.room:
            raise ValueError(
                f"{ENGINE} has room for outputs of {model.room} tokens, as it"
                " was loaded. Received: outputs of up to"
                f" {limits.max_target_length}"
            )
        self.model = model
        self.limits = limits
        self.batch_tokens = batch_tokens

    def search(
        self, rows: Sequence[Row], num_best: int
    ) -> list[tuple[list[list[int]], np.ndarray]]:
        """Ids and scores of the hypotheses of each row, best first."""
        limits = [self.limits.output_limit(len(r.source_ids) - 1) for r in rows]
        results = [([list[int]()], np.zeros(1)) for _ in rows]
        given = self._given_log_probs(rows)
        batches: list[list[int]] = []
        # A row that is given tokens would change the others of its batch.
        for has_given in (False, True):
            lengths = [
                len(r.source_ids) if bool(r.target_ids) == has_given else 0
                for r in rows
            ]
            batches += self._batches([n if n > 1 else 0 for n in lengths])
        while batches:
            again: dict[int, list[int]] = {}
            batches.reverse()  # the longest first
            longest = [max(limits[i] for i in batch) for batch in batches]
            calls = [
                self._call([rows[i] for i in batch], limit)
                for batch, limit in zip(batches, longest, strict=True)
            ]
            for batch, limit, call in zip(batches, longest, calls, strict=True):
                for i, future in zip(batch, call, strict=True):
                    found = future.result()
                    size = max(map(len, found.hypotheses))
                    if limits[i] < limit and size >= limits[i]:
                        # Its search has gone beyond its own limit.
                        again.setdefault(limits[i], []).append(i)
                        continue
                    results[i] = self._ranked(rows[i], found, given.get(i, 0))
            batches = list(again.values())
        return [(ids[:num_best], s[:num_best]) for ids, s in results]

    def warm_up_steps(
        self, num_best: int, given: Sequence[int] = ()
    ) -> list[tuple[int, Callable[[], object]]]:
        """A search: nothing is compiled, but the weights are then in memory."""
        row = Row([UNK, EOS], 0, [*given], [], num_given=len(given))
        return [(2, functools.partial(self.search, [row], num_best))]

    def score(self, rows: Sequence[Row]) -> list[np.ndarray]:
        """The log-probabilities of the whole `target_ids` of each row."""
        found = self._of_pairs(rows, self._score_call)
        return [np.array(result.log_probs) for result in found]

    def attention(self, rows: Sequence[Row]) -> list[np.ndarray]:
        """The attention of whole `target_ids`, as `Inference.alignment_ids`."""
        decoding = self.limits.decoding
        first = int(aligns_when_read(self.model.config, decoding))
        results = []
        found = self._of_pairs(rows, self._attention_call)
        for row, result in zip(rows, found, strict=True):
            attention = np.zeros(
                (len(row.target_ids) - 1, len(row.source_ids)), np.float32
            )
            weights = result.attention[0][first:][: len(attention)]
            if weights and weights[0]:  # not of a blank source
                attention[:, : len(weights[0])] = weights
            results.append(attention)
        return results

    # CTranslate2's calls, which return at once

    def _batches(self, lengths):
        return batches_of(lengths, self.batch_tokens, self.model.num_threads)

    def _of_pairs(self, rows, call):
        """CTranslate2's result of each row with whole `target_ids`."""
        lengths = [max(len(r.source_ids), len(r.target_ids)) for r in rows]
        batches = self._batches(lengths)[::-1]
        calls = [call([rows[i] for i in batch]) for batch in batches]
        results: list = [None] * len(rows)
        for batch, futures in zip(batches, calls, strict=True):
            for i, future in zip(batch, futures, strict=True):
                results[i] = future.result()
        return results

    def _call(self, rows, limit):
        """Searches for the outputs of rows, all with given tokens or none."""
        decoding = self.limits.decoding
        return self.model.translator.translate_batch(
            self._sources(rows),
            self._targets([row.target_ids for row in rows]),
            beam_size=decoding.beam_size,
            num_hypotheses=decoding.beam_size,
            length_penalty=self._penalty(rows[0]),
            max_decoding_length=limit,
            return_scores=True,
            **_COMMON,
        )

    def _score_call(self, rows):
        return self.model.translator.score_batch(
            self._sources(rows),
            self._targets([row.target_ids[:-1] for row in rows]),
            max_input_length=0,
            asynchronous=True,
        )

    def _attention_call(self, rows):
        """Forces the targets; the step after the last token reads it."""
        targets = [row.target_ids[:-1] for row in rows]
        return self.model.translator.translate_batch(
            self._sources(rows),
            self._targets(targets),
            beam_size=1,
            max_decoding_length=max(map(len, targets)) + 1,
            return_attention=True,
            **_COMMON,
        )

    def _sources(self, rows):
        """Pieces of sources; CTranslate2 adds EOS."""
        pieces = self.model.source_pieces
        return [[pieces[id] for id in row.source_ids[:-1]] for row in rows]

    def _targets(self, targets):
        pieces = self.model.target_pieces
        return [[pieces[id] for id in ids] for ids in targets]

    # Scores

    def _given_log_probs(self, rows):
        """The log-probability of the prefix of each row that has one."""
        own = {
            i: row._replace(target_ids=[*row.target_ids, EOS])
            for i, row in enumerate(rows)
            if len(row.target_ids) > row.num_given and len(row.source_ids) > 1
        }
        scored = zip(own.items(), self.score(list(own.values())), strict=True)
        return {
            i: log_probs[row.num_given : -1].sum()
            for (i, row), log_probs in scored
        }

    def _penalty(self, row):
        """The length penalty that CTranslate2 is told.

        It ranks hypotheses by it. The search does not depend on it, and the
        score of given tokens is added later.
        """
        decoding = self.limits.decoding
        if decoding.length_normalization != "power" or row.target_ids:
            return NO_PENALTY
        return decoding.length_penalty or NO_PENALTY

    def _ranked(self, row, found, given):
        """Ids of hypotheses and their scores by our definition, best first."""
        ids = [[self.model.ids[p] for p in each] for each in found.hypotheses]
        lengths = np.array([max(1, len(each)) for each in ids], float)
        log_probs = np.array(found.scores) * lengths ** self._penalty(row)
        scores = (log_probs + given) / length_penalty(
            self.limits.decoding, lengths
        )
        order = np.argsort(-scores, kind="stable")
        order = order[(log_probs[order] > MISSING) | (order == order[0])]
        return [ids[i] for i in order], scores[order]


# Of each call. CTranslate2's own limits do not count EOS.
_COMMON = {
    "asynchronous": True,
    "max_input_length": 0,
    "min_decoding_length": 0,
    "return_end_token": True,
}


def length_penalty(decoding: SearchConfig, lengths: np.ndarray) -> np.ndarray:
    """As of `decoding.rules`, of float arrays."""
    base = lengths
    if decoding.length_normalization == "wu":
        base = (lengths + 5) / 6
    return base**decoding.length_penalty


def _alignment_of(
    config: TransformerConfig, decoding: SearchConfig
) -> tuple[int, int]:
    """Layer and head of the attention that aligns words."""
    return find_alignment_layer(config, decoding), decoding.alignment_head
