"""Imports a Transformer of fairseq: a checkpoint and its dictionaries.

    checkpoint_best.pt      or model.pt, or checkpoint_last.pt, or the only .pt:
                            the weights and the training options
    dict.en.txt, dict.de.txt    subwords by frequency, for each language: beside
                                the checkpoint, in data-bin/, or below it
    sentencepiece.bpe.model     the SentencePiece model that makes the subwords;
    or spm.en.model, ...        or one per language, named after it

fairseq's decoder starts from EOS. Here BOS has the embedding of EOS, and a
logits bias that gives it no probability. fairseq's `<s>`, which is in the
softmax but never used, is an ordinary subword here.
"""

import pathlib
import re
import typing

import numpy as np

from keras_transformer.base import foreign_files as files
from keras_transformer.base.refusals import expect
from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.importers import stacks, vocabularies
from keras_transformer.importers.imported import Imported
from keras_transformer.importers.options import Options
from keras_transformer.importers.tensors import Tensors, arrays_by_name
from keras_transformer.importers.torch_pickle import Plain, read_torch
from keras_transformer.text.vocabulary import BOS

DATA = "data-bin"  # where fairseq-preprocess writes
CHECKPOINTS = ("checkpoint_best.pt", "model.pt", "checkpoint_last.pt")
# Classes of these modules occur in a checkpoint as data.
PLAIN = ("argparse", "omegaconf", "fairseq", "enum", "typing", "collections")
LAYER_NORM_EPSILON = 1e-5
# The first ids of every dictionary.
START, PAD, EOS, UNK = range(4)
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
ARCHITECTURES = (
    "transformer",
    "transformer_tiny",
    "transformer_iwslt_de_en",
    "transformer_wmt_en_de",
    "transformer_vaswani_wmt_en_de_big",
    "transformer_vaswani_wmt_en_fr_big",
    "transformer_wmt_en_de_big",
    "transformer_wmt_en_de_big_t2t",
    "transformer_align",
    "transformer_wmt_en_de_big_align",
)
# The supported values of options that change the computation. The first is the
# default. Other options add weights, which are refused.
KNOWN_VALUES = {
    "arch": ARCHITECTURES,
    "activation_fn": tuple(stacks.ACTIVATIONS),
    "adaptive_softmax_cutoff": (None,),
    "adaptive_input": (False,),
    "no_token_positional_embeddings": (False,),
    "no_cross_attention": (False,),
    "cross_self_attention": (False,),
    "merge_src_tgt_embed": (False,),
    "encoder_layers_to_keep": (None,),
    "decoder_layers_to_keep": (None,),
    "quant_noise_pq": (0, 0.0),
    "lang_tok_replacing_bos_eos": (False,),
}
# Options that must be equal for encoder and decoder, and their defaults.
SAME = {
    "embed_dim": 512,
    "ffn_embed_dim": 2048,
    "attention_heads": 8,
    "normalize_before": False,
    "learned_pos": False,
}
# Copies of an encoder layer's weights for a faster path. Version 0.12 makes
# them again when it loads a checkpoint.
COPIES = r"encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)"
OLD_MATRIX = "decoder.embed_out"  # the softmax matrix before version 0.9
# The defaults of fairseq-generate.
BEAM_SIZE, LENGTH_PENALTY = 5, 1.0


def recognizes(directory: pathlib.Path) -> bool:
    """Returns whether a directory holds a model of fairseq."""
    return any(directory.glob("*.pt")) and bool(_find_dictionaries(directory))


def read(directory: pathlib.Path) -> Imported:
    """Reads the model in a directory. See `keras_transformer.importers`."""
    path = _find_checkpoint(directory)
    state = read_torch(path, PLAIN)
    options, task, generation = _read_options(state, path)
    options.check(KNOWN_VALUES)
    tensors = Tensors(_tensors_in(state, path), path)
    languages = _find_languages(directory, task, tensors)
    sides = [_read_side(directory, language) for language in languages]
    notes = []
    if "source_lang" not in task and sides[0].table == sides[1].table:
        expect(
            sides[0].model == sides[1].model,
            "one SentencePiece model for the one dictionary, or a checkpoint"
            " that says which language is the source",
            f"{sides[0].path.name}, {sides[1].path.name}",
            where=path,
        )
        languages = ["", ""]
        notes.append(
            "the checkpoint does not say which language is the source:"
            " give --source_language and --target_language"
        )
    config = _read_config(options, tensors, sides)
    length = options.get("max_source_positions", 1024)
    return Imported(
        config=config,
        weights=_read_weights(config, tensors, sides),
        tokenizer=vocabularies.make_tokenizers(sides),
        decoding=_read_decoding(generation),
        source_language=languages[0],
        target_language=languages[1],
        max_length=min(length, config.position_limit or length),
        notes=notes,
    )


def _find_checkpoint(directory: pathlib.Path) -> pathlib.Path:
    paths = sorted(directory.glob("*.pt"))
    for name in CHECKPOINTS:
        if directory / name in paths:
            return directory / name
    return files.only(
        paths, f"{', '.join(CHECKPOINTS)}, or one .pt in {directory}"
    )


def _read_options(
    state: typing.Any, path: pathlib.Path
) -> tuple[Options, Options, Options]:
    """Reads the options of the model, the task and fairseq-generate."""
    state = state if isinstance(state, dict) else {}
    if state.get("args") is not None:  # before version 0.10
        model = task = _attributes(state["args"], path)
        generation = {}
    else:
        cfg = _attributes(state.get("cfg"), path)
        model = dict(_attributes(cfg.get("model"), path))
        model["arch"] = model.get("arch") or model.get("_name")
        task = _attributes(cfg.get("task"), path)
        generation = _attributes(cfg.get("generation", {}), path)
    return (
        Options(model, path, "--"),
        Options(task, path),
        Options(generation, path),
    )


def _attributes(value: typing.Any, path: pathlib.Path) -> dict:
    """Returns the options in a dictionary or an `argparse.Namespace`.

    Raises ValueError for other values.
    """
    if isinstance(value, Plain) and value.kind == "argparse.Namespace":
        value = value.state
    if not isinstance(value, dict):
        raise ValueError(
            f"{path}: expected a checkpoint of fairseq, with its options in"
            " `args` or `cfg`"
        )
    return value


def _tensors_in(state: typing.Any, path: pathlib.Path) -> dict[str, np.ndarray]:
    """Returns the weights, named as in fairseq since version 0.6."""
    tensors = {}
    for name, array in arrays_by_name(state.get("model"), path).items():
        prefix, _, last = name.rpartition(".")
        if re.fullmatch(COPIES, name):
            continue
        if last in ("in_proj_weight", "in_proj_bias"):
            with files.named_errors(f"{path}: {name}"):
                parts = np.split(array, 3)
            for part, letter in zip(parts, "qkv", strict=True):
                ending = last.removeprefix("in_proj_")
                tensors[f"{prefix}.{letter}_proj.{ending}"] = part
        elif last not in ("version", "_float_tensor"):
            tensors[name] = array
    return tensors


def _read_side(directory: pathlib.Path, language: str) -> vocabularies.Side:
    """Reads the dictionary of a language and its SentencePiece model."""
    paths = _find_dictionaries(directory)
    name = f"dict.{language}.txt, there or in {DATA}/"
    expect(language in paths, name, where=directory)
    symbols = _read_symbols(paths[language])
    ids = [PAD, EOS, EOS, UNK, START, *range(len(SPECIAL), len(symbols))]
    table = [symbols[id] for id in ids]
    table[BOS] = vocabularies.start_name(symbols)
    path = _find_subwords(directory, language)
    model = files.read_file(path)
    return vocabularies.Side(table, ids, model, path, excluded=(BOS,))


def _find_dictionaries(directory: pathlib.Path) -> dict[str, pathlib.Path]:
    """Finds the dictionaries. Returns their paths by language.

    fairseq-preprocess writes them beside the training data.
    """
    data = directory / DATA
    for folders in ([directory], [data], sorted(data.glob("*/"))):
        found = [sorted(folder.glob("dict.*.txt")) for folder in folders]
        found = [paths for paths in found if paths]
        expect(
            len(found) <= 1,
            "the dictionaries of the model beside the checkpoint",
            ", ".join(str(paths[0].parent) for paths in found),
            where=directory,
        )
        if found:
            return {path.name.split(".")[1]: path for path in found[0]}
    return {}


def _read_symbols(path: pathlib.Path) -> tuple[str, ...]:
    # Not by splitlines: a subword may be U+2028 or U+0085.
    lines = files.read_text(path).removesuffix("\n").split("\n")
    symbols = list(SPECIAL)
    for number, line in enumerate(lines, 1):
        symbol, _, count = line.rstrip().rpartition(" ")
        if not symbol or not count.isdecimal():
            raise ValueError(
                f"{path}, line {number}: expected a subword and its frequency."
                f" Received: {line!r}"
            )
        symbols.append(symbol)
    if len(set(symbols)) < len(symbols):
        raise ValueError(f"{path}: a subword occurs twice, or is a special one")
    return tuple(symbols)


def _find_languages(
    directory: pathlib.Path, task: Options, tensors: Tensors
) -> list[str]:
    """Finds the source and target language.

    The checkpoint lacks them if fairseq-train read them from the names of its
    data files. Then the dictionaries name both languages, and the sizes of
    embeddings tell which is the source. Raises ValueError if they do not.
    """
    if "source_lang" in task and "target_lang" in task:
        return [task.need(name, str) for name in ("source_lang", "target_lang")]
    paths = _find_dictionaries(directory)
    expect(
        len(paths) == 2,
        "two dictionaries, dict.en.txt and the like, there or in"
        f" {DATA}/, where fairseq-preprocess writes them",
        ", ".join(map(str, paths.values())) or "none",
        where=directory,
    )
    found = {language: _read_symbols(paths[language]) for language in paths}
    sizes = {language: len(symbols) for language, symbols in found.items()}
    rows = [
        tensors.matrix_shape(f"{stack}.embed_tokens.weight")[0]
        for stack in stacks.SIDES.values()
    ]
    first, second = found
    for order in ([first, second], [second, first]):
        is_clear = rows[0] != rows[1] or found[first] == found[second]
        if is_clear and [sizes[language] for language in order] == rows:
            return order
    raise ValueError(
        f"{tensors.path} does not say which language is the source. Expected"
        f" dictionaries of {rows[0]} and {rows[1]} subwords. Received: {sizes}"
    )


def _find_subwords(directory: pathlib.Path, language: str) -> pathlib.Path:
    """Finds the SentencePiece model named after a language, or the only one."""
    paths = sorted([*directory.glob("*.model"), *directory.glob("*.spm")])
    named = [path for path in paths if language in path.name.split(".")]
    if len(named) == 1:
        return named[0]
    return files.only(
        paths,
        f"in {directory} the SentencePiece model that makes the subwords of"
        f" {language}, such as sentencepiece.bpe.model or spm.{language}.model;"
        " subword-nmt and fastBPE cannot be imported",
    )


def _read_config(
    options: Options, tensors: Tensors, sides: list[vocabularies.Side]
) -> TransformerConfig:
    both = {}
    for name, default in SAME.items():
        both[name] = options.get(f"encoder_{name}", default)
        if options.get(f"decoder_{name}", default) != both[name]:
            options.refuse(f"decoder_{name}", f"encoder_{name} is {both[name]}")
    d_model = both["embed_dim"]
    for name in ("decoder_input_dim", "decoder_output_dim"):
        if options.get(name, d_model) != d_model:
            options.refuse(name, f"expected decoder_embed_dim={d_model}")
    positions = {"sinusoids": "t2t", "first_position": stacks.FIRST_POSITION}
    if both["learned_pos"]:
        rows, _ = tensors.matrix_shape("encoder.embed_positions.weight")
        rows -= stacks.FIRST_POSITION
        positions = {"positions": "learned", "max_positions": rows}
    shares_all = options.get("share_all_embeddings", False)
    shares_target = options.get("share_decoder_input_output_embed", False)
    return stacks.make_config(
        options.path,
        sides,
        d_model=d_model,
        d_ff=both["ffn_embed_dim"],
        num_heads=both["attention_heads"],
        num_layers=options.get("encoder_layers", 6),
        num_decoder_layers=options.get("decoder_layers", 6),
        dropout=options.get("dropout", 0.1),
        attention_dropout=options.get("attention_dropout", 0.0),
        activation_dropout=options.get("activation_dropout", 0.0)
        or options.get("relu_dropout", 0.0),
        pre_norm=both["normalize_before"],
        activation=stacks.ACTIVATIONS[options.get("activation_fn", "relu")],
        attention_bias=True,
        layer_norm_epsilon=LAYER_NORM_EPSILON,
        embedding_norm=options.get("layernorm_embedding", False),
        scale_embeddings=not options.get("no_scale_embedding", False),
        share_embeddings=stacks.sharing(
            shares_all, shares_all or shares_target
        ),
        logits_bias=True,
        **positions,
    )


def _read_weights(
    config: TransformerConfig, tensors: Tensors, sides: list[vocabularies.Side]
) -> dict[str, np.ndarray]:
    names = {
        "source": "encoder.embed_tokens.weight",
        "target": "decoder.embed_tokens.weight",
        "softmax": "decoder.output_projection.weight",
    }
    if OLD_MATRIX in tensors:
        names["softmax"] = OLD_MATRIX

    def read(name: str, shape: tuple[int, ...]) -> np.ndarray:
        if name == "bias":
            return np.zeros(shape, np.float32)
        return tensors.take(names[name], shape)

    weights = stacks.read_embeddings(config, sides, read)
    for name in names.values():  # copies of one matrix
        tensors.drop(name)
    weights |= stacks.read_positions(config, tensors)
    weights |= stacks.read_torch_stacks(config, tensors)
    return stacks.finish(config, weights, tensors)


def _read_decoding(generation: Options) -> DecodingConfig:
    """Converts the options of fairseq-generate to a `DecodingConfig`."""
    penalty = generation.get("lenpen", LENGTH_PENALTY)
    if generation.get("unnormalized", False):
        penalty = 0.0
    return DecodingConfig(
        beam_size=generation.get("beam", BEAM_SIZE),
        length_penalty=penalty,
        length_normalization="power",
        stopping="fairseq",
        min_length=generation.get("min_len", 1) + 1,  # EOS counts here
        no_repeat_ngram=generation.get("no_repeat_ngram_size", 0),
    )
