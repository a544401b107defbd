"""Reads the search options of transformers' `generate`.

They are in generation_config.json or, in older models, in config.json. The
import notes each option that changes translations and has no counterpart here.
"""

import json
import pathlib
import typing

from keras_transformer.base.foreign_files import named_errors, read_json
from keras_transformer.config import DecodingConfig
from keras_transformer.importers.options import Options

CONFIG, GENERATION = "config.json", "generation_config.json"
FORCED_EOS = 0  # the default of forced_eos_token_id in config.json
# Options of `generate` without a counterpart here, with the values that change
# no translation.
NO_COUNTERPART = {
    "begin_suppress_tokens": None,
    "constraints": None,
    "diversity_penalty": 0.0,
    "early_stopping": False,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "exponential_decay_length_penalty": None,
    "force_words_ids": None,
    "forced_bos_token_id": None,
    "guidance_scale": 1.0,
    "max_time": None,
    "num_beam_groups": 1,
    "penalty_alpha": 0.0,
    "repetition_penalty": 1.0,
    "sequence_bias": None,
    "stop_strings": None,
    "suppress_tokens": None,
    "watermarking_config": None,
}
# The same, for options that matter only in sampling.
NO_SAMPLING = {
    "eta_cutoff": 0.0,
    "min_p": 0.0,
    "num_beams": 1,
    "top_h": None,
    "typical_p": 1.0,
}
# A length limit of at most this many tokens also becomes `extra_length`.
SHORT_OUTPUT = 128


def search_options(directory: pathlib.Path, options: Options) -> Options:
    """Reads generation_config.json. Returns `options` if there is none."""
    path = directory / GENERATION
    return Options(read_json(path), path) if path.exists() else options


def start_id(search: Options, options: Options) -> int:
    """Returns the id that the decoder starts with."""
    start = options.get(
        "decoder_start_token_id", options.need("pad_token_id", int)
    )
    if search is not options:
        start = search.get("bos_token_id", start)
    return search.get("decoder_start_token_id", start)


def banned_ids(search: Options) -> list[list[int]]:
    """Returns `bad_words_ids`: sequences of ids that are never generated."""
    banned = search.values.get("bad_words_ids") or []
    if not isinstance(banned, list) or not all(
        isinstance(words, list) and all(type(id) is int for id in words)
        for words in banned
    ):
        raise ValueError(
            f"{search.path}: bad_words_ids must be a list of lists of ids."
            f" Received: bad_words_ids={json.dumps(banned)[:60]}"
        )
    return banned


def _forced_end(search: Options, options: Options) -> typing.Any:
    """Returns the id that is forced at the length limit, or None."""
    default = FORCED_EOS if search is options else None
    return search.values.get("forced_eos_token_id", default)


def _longest_output(search: Options, options: Options) -> int | None:
    """Returns the maximum output length, EOS included, or None for no limit.

    transformers' limit also counts the decoder's start token and the EOS that
    is forced at the limit, if any.
    """
    at_limit = 0 if _forced_end(search, options) is None else 1
    if "max_new_tokens" in search:
        return search.need("max_new_tokens", int) - at_limit
    if "max_length" not in search:
        return None
    return search.need("max_length", int) - 1 - at_limit


def read_decoding(
    search: Options, options: Options
) -> tuple[DecodingConfig, list[str]]:
    """Converts the search to a `DecodingConfig`, with notes on differences."""
    sampling = search.get("do_sample", False)
    limit = _longest_output(search, options)
    extra, notes = DecodingConfig.extra_length, []
    if limit is None:
        notes.append(
            f"without max_length, the maximum output length is source tokens +"
            f" {extra}; transformers has 20"
        )
    elif limit <= SHORT_OUTPUT:
        extra = limit
    else:
        notes.append(
            f"the maximum output length is source tokens + {extra}; in"
            f" transformers it is {limit}: see --extra_length"
        )
    shortest = search.get("min_length", 0)
    if "min_new_tokens" in search:
        shortest = search.need("min_new_tokens", int) + 1  # EOS counts here
    of_sampling = {
        "temperature": search.get("temperature", 1.0),
        "top_k": search.get("top_k", 50),
        "top_p": search.get("top_p", 1.0),
        "epsilon": search.get("epsilon_cutoff", 0.0),
    }
    with named_errors(search.path):
        decoding = DecodingConfig(
            beam_size=search.get("num_beams", 1),
            length_penalty=search.get("length_penalty", 1.0),
            length_normalization="power",
            stopping="transformers",
            extra_length=extra,
            max_output_length=limit,
            min_length=shortest,
            no_repeat_ngram=search.get("no_repeat_ngram_size", 0),
            sampling=sampling,
            **(of_sampling if sampling else {}),
        )
    return decoding, [*notes, *_differences(search, options, decoding)]


def _differences(
    search: Options, options: Options, decoding: DecodingConfig
) -> list[str]:
    """Describes the differences from `generate`, one per line."""
    neutral = NO_COUNTERPART | (NO_SAMPLING if decoding.sampling else {})
    notes = []
    for name, value in neutral.items():
        found = search.values.get(name)
        if found not in (None, [], value):
            notes.append(
                f"{name}={json.dumps(found)[:60]} has no counterpart here"
            )
    if decoding.epsilon and decoding.top_p < 1.0:
        notes.append("epsilon_cutoff: here it applies before top_p")
    pad, eos = (options.values[f"{role}_token_id"] for role in ("pad", "eos"))
    banned = banned_ids(search)
    start = start_id(search, options)
    if any(words not in ([pad], [start]) for words in banned):
        notes.append("bad_words_ids: here only padding is banned")
    if [pad] not in banned:
        notes.append("bad_words_ids has no padding, which is banned here")
    ends = search.values.get("eos_token_id")
    if ends not in (None, eos, [eos]):
        notes.append(
            f"eos_token_id={json.dumps(ends)[:60]}: here an output ends with"
            f" {eos}, as {CONFIG} says"
        )
    forced = _forced_end(search, options)
    if forced not in (eos, [eos]):
        notes.append(
            f"forced_eos_token_id={json.dumps(forced)[:60]}: here an output at"
            f" its length limit is scored as if {eos} followed"
        )
    if search.get("renormalize_logits", False) and (
        decoding.min_length > 1 or decoding.no_repeat_ngram
    ):
        notes.append(
            "renormalize_logits: here the probability of tokens that min_length"
            " or no_repeat_ngram_size forbids is not redistributed"
        )
    return [f"{search.path.name}: {note}" for note in notes]
