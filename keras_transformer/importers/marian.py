"""Imports Marian's `.npz` from a training or an OPUS-MT package.

    model.npz               the weights, and the options of the model
    model.npz.decoder.yml   or decoder.yml, optional: the names of the model and
                            the vocabularies, and the search options
    vocab.spm               the vocabularies: SentencePiece models, one or two;
    or vocab.yml            or ids by piece, beside source.spm and target.spm

Marian's decoder starts from an embedding of zeros. Marian has no ids for this
start and for padding. Here both have rows of zeros, and a logits bias that
gives them no probability.
"""

import functools
import pathlib

import numpy as np
import sentencepiece

from keras_transformer.base.foreign_files import named_errors, only, read_file
from keras_transformer.base.refusals import expect
from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.importers import stacks, vocabularies
from keras_transformer.importers.imported import Imported
from keras_transformer.importers.options import Options
from keras_transformer.importers.tensors import Tensors, holds_array, read_npz
from keras_transformer.storage import yaml_files
from keras_transformer.text.vocabulary import BOS, PAD

OPTIONS = "special:model.yml"  # the archive member with the options
LAYER_NORM_EPSILON = 1e-6
MAX_LENGTH = 512  # tokens of a source: the model itself has no limit
BEAM_SIZE, NORMALIZE = 12, 0.0  # Marian's search defaults
EOS_PIECE, UNK_PIECE = "</s>", "<unk>"
PAD_PIECES = ("<pad>", "<padding>", "<padding of a row>")
# The supported values of options that change the computation. The first is the
# default. Other options add or remove weights, which is refused.
KNOWN_VALUES = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-attention-mask": ("default",),
    "transformer-pool": (False,),
    "transformer-disable-position-embeddings": (False,),
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (0, 2),
    "transformer-ffn-activation": ("swish", "relu"),
    "transformer-postprocess-emb": ("d", "", "n", "nd", "dn"),
    "right-left": (False,),
    "ulr": (False,),
}
# Marian's names for parts of a path: layers and norms, then linear maps.
PARTS = {
    "self_attention": "self",
    "cross_attention": "context",
    "feed_forward": "ffn",
    "self_attention_residual": "self_Wo",
    "cross_attention_residual": "context_Wo",
    "feed_forward_residual": "ffn_ffn",
    "norm": "",
    "final_norm": "top",
    "source_embedding_norm": "encoder_emb",
    "target_embedding_norm": "decoder_emb",
}
LINEAR = {
    "query": "q",
    "key": "k",
    "value": "v",
    "output": "o",
    "inner": "1",
    "outer": "2",
}
# Whether a model is pre-norm, by transformer-preprocess, -postprocess and
# -postprocess-top without the `d` of dropout.
PRE_NORM = {("", "an", ""): False, ("n", "a", "n"): True}


def recognizes(directory: pathlib.Path) -> bool:
    """Returns whether a directory holds a Marian model."""
    return any(holds_array(path, OPTIONS) for path in directory.glob("*.npz"))


def read(directory: pathlib.Path) -> Imported:
    """Reads the model in a directory. See `keras_transformer.importers`."""
    search = _read_search(directory)
    path = _find_model(directory, search)
    arrays = read_npz(path)
    options = _read_options(arrays, path)
    options.check(KNOWN_VALUES)
    sides = _read_sides(directory, search if "vocabs" in search else options)
    config = _read_config(options, sides, path)
    notes = []
    if search.get("word-penalty", 0.0):
        notes.append("the search here has no word-penalty")
    if not search.get("allow-unk", False):
        notes.append("Marian never writes an unknown subword; here it can be")
    return Imported(
        config=config,
        weights=_read_weights(config, options, Tensors(arrays, path), sides),
        tokenizer=vocabularies.make_tokenizers(sides),
        decoding=DecodingConfig(
            beam_size=search.get("beam-size", BEAM_SIZE),
            length_penalty=search.get("normalize", NORMALIZE),
            length_normalization="power",
            stopping="marian",
        ),
        max_length=MAX_LENGTH,
        notes=notes,
    )


def _read_search(directory: pathlib.Path) -> Options:
    """Reads decoder.yml. Returns empty options if there is no such file."""
    paths = sorted(directory.glob("*decoder.yml"))
    # Validation writes one for each metric: `model.npz.best-bleu.npz...`.
    paths = [path for path in paths if ".best-" not in path.name] or paths
    if not paths:
        return Options({}, directory)
    path = only(paths, f"one decoder.yml in {directory}")
    return Options(yaml_files.read_options(path), path)


def _find_model(directory: pathlib.Path, search: Options) -> pathlib.Path:
    paths = sorted(directory.glob("*.npz"))
    if "models" in search:
        names = search.get("models", [])
        if len(names) > 1:
            search.refuse("models", "it is an ensemble")
        paths = [directory / pathlib.PurePath(str(name)).name for name in names]
    return only(
        paths, f"one .npz in {directory}, or a decoder.yml that says which"
    )


def _read_options(arrays: dict[str, np.ndarray], path: pathlib.Path) -> Options:
    """Removes the options from the arrays and parses them."""
    received = ", ".join(sorted(arrays)[:3])
    kind = f"a model of Marian, with {OPTIONS}"
    expect(OPTIONS in arrays, kind, received, where=path)
    text = arrays.pop(OPTIONS).tobytes().rstrip(b"\0")
    where = f"{path}: {OPTIONS}"
    return Options(yaml_files.parse_options(text, where), where, "--")


def _read_sides(
    directory: pathlib.Path, options: Options
) -> list[vocabularies.Side]:
    names = options.need("vocabs", list)
    if len(names) != 2:
        options.refuse("vocabs", "expected one source and one target")
    paths = [directory / pathlib.PurePath(str(name)).name for name in names]
    return [
        _read_spm_side(path)
        if path.suffix == ".spm"
        else _read_yaml_side(path, directory / model)
        for path, model in zip(paths, ("source.spm", "target.spm"), strict=True)
    ]


def _read_spm_side(path: pathlib.Path) -> vocabularies.Side:
    """Reads a SentencePiece model. Its ids are also Marian's."""
    model = read_file(path)
    processor = sentencepiece.SentencePieceProcessor()
    with named_errors(path, "not a SentencePiece model: "):
        processor.LoadFromSerializedProto(model)
    special = processor.eos_id(), processor.unk_id()
    expect(min(special) >= 0, "ids of EOS and UNK", where=path)
    size = processor.get_piece_size()
    pieces = processor.id_to_piece(list(range(size)))
    return _make_side(pieces, *special, model, path)


def _read_yaml_side(
    path: pathlib.Path, model: pathlib.Path
) -> vocabularies.Side:
    """Reads ids by piece, and the SentencePiece model that makes the pieces."""
    expect(
        path.suffix in (".yml", ".yaml"),
        "a vocabulary .yml or .spm; factored ones (.fsv) cannot be imported",
        where=path,
    )
    with named_errors(path, "expected ids: "):
        ids = {
            piece: int(id)
            for piece, id in yaml_files.read_strings(path).items()
        }
    pieces = sorted(ids, key=lambda piece: ids[piece])
    is_complete = sorted(ids.values()) == list(range(len(pieces)))
    expect(is_complete, f"each id below {len(pieces)} once", where=path)
    for piece in (EOS_PIECE, UNK_PIECE):
        expect(piece in ids, f"{piece}, which Marian needs", where=path)
    expect(
        model.is_file(),
        f"the SentencePiece model that makes the pieces of {path.name} in"
        f" {model}; other subwords (BPE) cannot be imported",
    )
    special = ids[EOS_PIECE], ids[UNK_PIECE]
    return _make_side(pieces, *special, read_file(model), model)


def _make_side(
    pieces: list[str], eos: int, unk: int, model: bytes, path: pathlib.Path
) -> vocabularies.Side:
    """Makes a vocabulary from Marian's pieces, and adds PAD and BOS."""
    others = [id for id in range(len(pieces)) if id not in (eos, unk)]
    known = [eos, unk, *others]
    names = [pieces[id] for id in known]
    pad = next(name for name in PAD_PIECES if name not in names)
    return vocabularies.Side(
        table=[pad, vocabularies.start_name(names), *names],
        ids=[vocabularies.NO_ROW, vocabularies.NO_ROW, *known],
        model=model,
        path=path,
        excluded=(PAD, BOS),
    )


def _read_config(
    options: Options, sides: list[vocabularies.Side], path: pathlib.Path
) -> TransformerConfig:
    d_ff = options.need("transformer-dim-ffn", int)
    if options.get("transformer-decoder-dim-ffn", 0) not in (0, d_ff):
        options.refuse("transformer-decoder-dim-ffn", f"the encoder has {d_ff}")
    shares_all = options.get("tied-embeddings-all", False)
    shares_inputs = shares_all or options.get("tied-embeddings-src", False)
    shares_softmax = shares_all or options.get("tied-embeddings", False)
    if shares_inputs and sides[0].ids != sides[1].ids:
        options.refuse(
            "vocabs",
            "embeddings are shared, but EOS, UNK or the numbers of pieces"
            " differ",
        )
    return stacks.make_config(
        path,
        sides,
        d_model=options.need("dim-emb", int),
        d_ff=d_ff,
        num_heads=options.need("transformer-heads", int),
        num_layers=options.need("enc-depth", int),
        num_decoder_layers=options.need("dec-depth", int),
        dropout=options.get("transformer-dropout", 0.0),
        attention_dropout=options.get("transformer-dropout-attention", 0.0),
        activation_dropout=options.get("transformer-dropout-ffn", 0.0),
        pre_norm=_is_pre_norm(options),
        activation=options.get("transformer-ffn-activation", "swish"),
        attention_bias=True,
        layer_norm_epsilon=LAYER_NORM_EPSILON,
        embedding_norm="n" in options.get("transformer-postprocess-emb", "d"),
        sinusoids="t2t",
        share_embeddings=stacks.sharing(shares_inputs, shares_softmax),
        logits_bias=True,
    )


def _is_pre_norm(options: Options) -> bool:
    """Returns whether a model is pre-norm.

    Raises ValueError if it is neither pre-norm nor post-norm.
    """
    operations = tuple(
        options.get(name, default).replace("d", "")
        for name, default in (
            ("transformer-preprocess", ""),
            ("transformer-postprocess", "dan"),
            ("transformer-postprocess-top", ""),
        )
    )
    expect(
        operations in PRE_NORM,
        "--transformer-preprocess='' --transformer-postprocess=dan"
        " --transformer-postprocess-top='', or n, da and n; other orders of"
        " norms cannot be imported",
        operations,
        where=options.path,
    )
    return PRE_NORM[operations]


def _read_weights(
    config: TransformerConfig,
    options: Options,
    tensors: Tensors,
    sides: list[vocabularies.Side],
) -> dict[str, np.ndarray]:
    numbers = list(range(1, config.decoder_depth + 1))
    tied = options.get("transformer-tied-layers", []) or numbers
    if len(tied) != len(numbers) or not all(type(n) is int for n in tied):
        options.refuse(
            "transformer-tied-layers", f"expected {len(numbers)} layers"
        )

    @functools.cache  # tied layers take the same tensor
    def take(name: str, *shape: int) -> np.ndarray:
        return tensors.take(name, shape)

    def read(path: str, shape: tuple[int, ...]) -> np.ndarray:
        *parts, name, kind = path.split("/")
        if len(parts) > 1:
            layer = int(parts[1].removeprefix("layer_"))
            number = tied[layer] if parts[0] == "decoder" else layer + 1
            parts[1] = f"l{number}"
        if name in LINEAR:
            last = ("W" if kind == "kernel" else "b") + LINEAR[name]
        else:
            parts.append(name)
            last = "ln_scale" if kind == "gamma" else "ln_bias"
            if name != "final_norm" and (config.pre_norm or name != "norm"):
                last += "_pre"
        parts = [*(PARTS.get(part, part) for part in parts), last]
        # Marian's vectors are matrices of one row.
        array = take("_".join(filter(None, parts)), *(1, *shape)[-2:])
        return array.reshape(shape)

    output = "decoder_ff_logit_out"
    names = {
        "source": "encoder_Wemb",
        "target": "decoder_Wemb" if config.has_source_embedding else "Wemb",
        "softmax": f"{output}_Wt",
    }

    def read_rows(name: str, shape: tuple[int, ...]) -> np.ndarray:
        if name == "bias" and options.get("output-omit-bias", False):
            return np.zeros(shape, np.float32)
        if name == "bias":
            return tensors.take(f"{output}_b", (1, *shape))[0]
        if name == "softmax" and f"{output}_W" in tensors:  # older versions
            return tensors.take(f"{output}_W", shape[::-1]).T
        return tensors.take(names[name], shape)

    weights = stacks.read_embeddings(config, sides, read_rows)
    weights |= stacks.read_stacks(config, read)
    return stacks.finish(config, weights, tensors)
