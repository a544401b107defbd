"""Models of other systems under `fixtures/`, with those systems' outputs.

`fixtures/make_*.py` made them with the systems themselves. A folder has the
files of a model, `expected.json` (sources, translations, pairs of ids) and
`logits.npz` (the logits of the pairs).
"""

import dataclasses
import json
import pathlib
import typing

import numpy as np
import sentencepiece

import keras_transformer as kt
from keras_transformer.importers.imported import Imported
from keras_transformer.text.vocabulary import BOS, EOS, UNK

FIXTURES = pathlib.Path(__file__).parent / "fixtures"
# What a clone without Git LFS has instead of a file.
POINTER = (
    "version https://git-lfs.github.com/spec/v1\n"
    f"oid sha256:{'b3cf01e8' * 8}\n"
    "size 930040720\n"
)


class Original(typing.NamedTuple):
    """A model of another system.

    Attributes:
        folder: The folder of its files.
        pieces: The piece of each id, for the source and for the target.
    """

    folder: pathlib.Path
    pieces: tuple[list[str], list[str]]

    @property
    def expected(self) -> dict:
        """The system's output with this model."""
        return json.loads((self.folder / "expected.json").read_text("utf-8"))


def check_text(tokenizer: kt.Tokenizer, model: pathlib.Path, text: str) -> None:
    """Checks that a text's ids are those of a SentencePiece model's pieces."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    pieces = processor.encode(text, out_type=str)
    ids = {piece: id for id, piece in enumerate(tokenizer.pieces)}
    expected = [*(ids.get(piece, UNK) for piece in pieces), EOS]
    assert tokenizer.to_ids([text]) == [expected]
    assert tokenizer.encode([text]).to_list() == [expected]


def check_logits(original: Original, imported: Imported) -> None:
    """Checks that the logits of pairs are the original's, to 1e-4."""
    model = imported.make_model()
    tokenizer = imported.tokenizer
    places = [
        np.array([of_side.pieces.index(piece) for piece in pieces])
        for pieces, of_side in zip(
            original.pieces,
            (tokenizer.source, tokenizer.target),
            strict=True,
        )
    ]
    pairs = original.expected["ids"]
    assert len(pairs) == 2
    with np.load(original.folder / "logits.npz") as arrays:
        for i, pair in enumerate(pairs):
            source = places[0][pair["source"]].tolist()
            if not imported.config.source_eos:
                source.append(EOS)
            # Our decoder starts with BOS, theirs with some other token.
            target = [BOS, *places[1][pair["target"][1:]]]
            logits = model(
                {
                    "source_ids": np.array([[*source, 0]], "int32"),
                    "target_ids": np.array([target], "int32"),
                }
            )
            expected = arrays[f"logits_{i}"]
            assert np.ptp(expected) > 2
            # Some logits are large, and so are their float32 errors.
            atol = 1e-4 * max(1.0, np.ptp(expected) / 30)
            found = logits[0].numpy()[:, places[1]]
            np.testing.assert_allclose(found, expected, atol=atol)
            if imported.config.logits_bias:  # PAD and BOS may not be outputs
                others = set(range(found.shape[1])) - set(places[1])
                assert (logits[0].numpy()[:, list(others)] < -5e3).all()


def translate(imported: Imported, sources: list[str], **decoding):
    """Returns each source's best hypothesis: pieces without EOS, and score."""
    translator = kt.Translator(
        imported.tokenizer,
        imported.make_model(),
        dataclasses.replace(imported.decoding, **decoding),
        imported.max_length,
    )
    pieces = imported.tokenizer.target.pieces
    found = translator.n_best_ids(sources)
    return [
        ([pieces[id] for id in ids if id != EOS], score)
        for ((ids, score), *_) in found
    ]
