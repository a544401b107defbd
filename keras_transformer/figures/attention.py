"""A model's attention as an interactive page, and as figures for papers.

The page is one file: `attention.html` with its style sheet, its script and the
weights inside. It makes no requests, and its content security policy forbids
them.
"""

import base64
import html
import os
import typing
import unicodedata
import zlib
from collections.abc import Sequence

import numpy as np
from absl import logging

from keras_transformer.base.fields import unhandled
from keras_transformer.base.files import write_atomically
from keras_transformer.base.refusals import expect
from keras_transformer.config import find_alignment_layer
from keras_transformer.data.labels import shift_right
from keras_transformer.data.languages import Direction
from keras_transformer.figures import saving
from keras_transformer.figures.colors import head_color
from keras_transformer.figures.pages import render_page
from keras_transformer.text.case_marks import GLYPHS
from keras_transformer.text.vocabulary import EOS, SPACE
from keras_transformer.text.writing import direction, is_wide
from keras_transformer.translation.requests import Request, encode_pairs
from keras_transformer.translator import Translator

SUFFIXES = (".html", *saving.SUFFIXES)
VIEWS = ("lines", "heat_map")
WHOLE = 65535  # the sum of a row of stored weights
ROW_ERROR = 1e-2  # allowed in the sum of a row, because of half precision
FRAME_HEIGHT = 640  # pixels of the page in a notebook
UNKNOWN = "<unk>"
SPECIAL_PIECES = {"<s>": "BOS", "</s>": "EOS", UNKNOWN: "UNK"} | GLYPHS
NAMED = 5  # maximum number of unknown texts that a note names


class Kind(typing.NamedTuple):
    """One of the three uses of attention (sec. 3.2.3)."""

    title: str
    queries: str  # the tokens that attend: "source", "written" or "read"
    keys: str  # the tokens attended to


KINDS = {
    "encoder": Kind("Encoder self-attention", "source", "source"),
    "decoder": Kind("Decoder self-attention", "written", "read"),
    "cross": Kind("Encoder-decoder attention", "written", "source"),
}


class Token(typing.NamedTuple):
    """A token as displayed."""

    text: str  # the piece without its space marker; for UNK, see `_shown`
    starts: bool  # whether it starts a word
    special: bool  # BOS, EOS or UNK


class AttentionFigure:
    """Attention of every layer and head for a sentence and its translation.

    A notebook displays the page.

    At each position the decoder reads BOS and the tokens written before, and
    writes one token. So rows of its weights are labeled with the token written,
    and columns of its self-attention with the token read.

    Args:
        source: The sentence.
        target: Its translation.
        source_pieces: The tokens of the sentence, EOS included.
        target_pieces: The tokens of the translation; without EOS, it is
            truncated.
        maps: Weights by kind, a key of `KINDS`: float `[L, H, T, S]`, for T
            queries and S keys.
        languages: Language codes of source and target; None if unknown.
        forced: Whether the translation was given, not found by the model.
        notes: Sentences that the page and the figures show, such as that the
            source is truncated. Notes about a truncated translation and about
            unknown texts are added.
        unknown: The parts of both texts that the vocabulary cannot write.

    Raises:
        ValueError: If shapes do not match, or a row does not sum to 1.
    """

    def __init__(
        self,
        source: str,
        target: str,
        source_pieces: Sequence[str],
        target_pieces: Sequence[str],
        maps: dict[str, np.ndarray],
        languages: tuple[str | None, str | None] = (None, None),
        forced: bool = False,
        notes: Sequence[str] = (),
        unknown: Sequence[str] = (),
    ):
        self.source, self.target = source, target
        self.languages, self.forced = languages, forced
        self.notes = [*notes, *_name_unknown(unknown)]
        if target_pieces[-1] != "</s>":
            self.notes.append(
                f"The translation is truncated to {len(target_pieces)} tokens."
            )
        written = [*map(_shown, target_pieces)]
        self.tokens = {
            "source": [*map(_shown, source_pieces)],
            "written": written,
            "read": [_shown("<s>"), *written[:-1]],
        }
        self.maps = {kind: np.asarray(maps[kind], np.float32) for kind in KINDS}
        for kind, weights in self.maps.items():
            _, *sides = KINDS[kind]
            _check_map(kind, weights, *(len(self.tokens[s]) for s in sides))

    def html(self) -> str:
        """Returns the page, HTML without references to other files."""
        return render_page(
            "keras_transformer.figures",
            "attention.html",
            figure=self,
            data=self._data(),
        )

    def _data(self):
        return {
            "sentences": [
                {"language": language or "", "direction": direction(language)}
                for language in self.languages
            ],
            "tokens": {
                name: [list(token) for token in tokens]
                for name, tokens in self.tokens.items()
            },
            "kinds": [
                {
                    "name": name,
                    **KINDS[name]._asdict(),
                    "layers": num_layers,
                    "heads": num_heads,
                    "colors": {
                        mode: [
                            head_color(head, num_heads, mode == "dark")
                            for head in range(num_heads)
                        ]
                        for mode in ("light", "dark")
                    },
                }
                for name, weights in self.maps.items()
                for num_layers, num_heads in [weights.shape[:2]]
            ],
            "whole": WHOLE,
            "weights": _pack(self.maps.values()),
        }

    def svg(self, **choice: typing.Any) -> str:
        """Draws one layer as a figure for a paper. Returns SVG text.

        Args:
            **choice: As for `save`.

        Raises:
            ValueError: As for `save`.
        """
        saving.check_matplotlib("a figure")
        return saving.render(self._draw(**choice)).decode()

    def save(self, path: str | os.PathLike, **choice: typing.Any) -> None:
        """Writes the page, or a figure of one layer.

        Args:
            path: A path that ends with .html for the page, or with .svg, .png
                or .pdf for a figure.
            **choice: The content of a figure. A page has everything.
                kind: A key of `KINDS`, by default "encoder".
                layer: Counted from 1; by default the last.
                heads: Counted from 1; by default all of them.
                token: The only query to show, counted from 1; by default all.
                view: "lines", the default, as in Figures 3 to 5; or "heat_map",
                    the mean over the heads.

        Raises:
            ValueError: There is no such kind, layer, head, token or view; the
                path has another suffix, or one that needs matplotlib, which is
                not installed; or a choice is given for a page.
            OSError: The file cannot be written.
        """
        if saving.suffix_of(path, SUFFIXES) != ".html":
            saving.save_figure(self._draw(**choice), path)
            return
        expect(
            not choice,
            "no choice for a page, which has all layers, heads and views",
            ", ".join(choice),
        )
        write_atomically(path, self.html())

    def _draw(
        self,
        kind: str = "encoder",
        layer: int | None = None,
        heads: Sequence[int] | None = None,
        token: int | None = None,
        view: str = "lines",
    ):
        """Draws one layer with matplotlib. Arguments are as for `save`."""
        from keras_transformer.figures import attention_plots

        expect(kind in KINDS, f"kind of {', '.join(KINDS)}", f"{kind=}")
        expect(view in VIEWS, f"view of {', '.join(VIEWS)}", f"{view=}")
        weights = self.maps[kind]
        num_layers, num_heads, num_queries, _ = weights.shape
        layer = num_layers if layer is None else layer
        heads = range(1, num_heads + 1) if heads is None else heads
        expect(heads, "at least one head", "heads=[]")
        for name, limit, numbers in (
            ("layer", num_layers, [layer]),
            ("heads", num_heads, heads),
            ("token", num_queries, [] if token is None else [token]),
        ):
            for number in numbers:
                is_there = 1 <= number <= limit
                expect(is_there, f"{name} from 1 to {limit}", number)
        expect(
            token is None or view == "lines", "view=lines for token", f"{view=}"
        )
        indices = [head - 1 for head in heads]
        title, queries, keys = KINDS[kind]
        drawing = attention_plots.Drawing(
            f"{title} of layer {layer}, heads {', '.join(map(str, heads))}",
            [_marked(token) for token in self.tokens[queries]],
            [_marked(token) for token in self.tokens[keys]],
            weights[layer - 1, indices],
            indices,
            num_heads,
            self.notes,
        )
        if view == "heat_map":
            return attention_plots.draw_heat_map(drawing)
        if view == "lines":
            shown = None if token is None else token - 1
            return attention_plots.draw_lines(drawing, shown)
        raise unhandled(view=view)

    def _repr_html_(self) -> str:
        """Returns the page in an iframe, for a notebook."""
        return (
            f'<iframe srcdoc="{html.escape(self.html())}" title="attention"'
            f' sandbox="allow-scripts" width="100%" height="{FRAME_HEIGHT}"'
            ' style="border: 1px solid #8884"></iframe>'
        )


def attention_figure(
    translator: Translator,
    text: str,
    reference: str | None = None,
    languages: tuple[str | None, str | None] = (None, None),
) -> AttentionFigure:
    """Computes a translator's attention for a sentence and its translation.

    A sentence that is too long is truncated, with a warning, as in
    `Translator.translate`.

    Args:
        translator: The `Translator`.
        text: The sentence.
        reference: A translation to use instead of the model's own.
        languages: Language codes of source and target, by which a browser
            chooses fonts; None if unknown.

    Returns:
        An `AttentionFigure`: `figure.save("attention.html")`.

    Raises:
        ValueError: The sentence, the reference or the translation is blank, or
            the translator's engine has no attention.
        FloatingPointError: The model's logits are not finite.
    """
    for name, value in (("text", text), ("reference", reference)):
        expect(value is None or value.strip(), "a word", f"{name}={value!r}")
    translator.check_use("attention_figure")
    told = translator.direction or Direction()
    both, encoding = translator.tokenizer, translator.encoding
    of_text = encoding.tokenizer_of(Request(text))
    [row] = encode_pairs([(text, reference or "")], encoding)
    read = [row.reading] + [row.prefix] * (reference is not None)
    expect(
        all(one.text.strip() for one in read),
        "words that the vocabulary can write",
        f"{text=}, {reference=}",
    )
    if reference is None:
        [[(ids, _), *_]] = translator.n_best_ids([text])
        [target] = of_text.target.to_strings([ids])
    else:
        ids, target = [*row.target_ids], reference
        for note in row.notes:
            logging.warning("the pair %s", note)
    expect(ids, "a translation that is not empty", f"{text=}")
    source_ids, num_given = row.source_ids, row.num_given
    end = source_ids.index(EOS, row.tag_length)
    words = {*source_ids[: row.tag_length], *source_ids[end + 1 :]}
    notes = [f"A sentence {note}." for note in row.notes]
    decoding = translator.decoding
    if decoding.alignment_head:
        layer = find_alignment_layer(translator.model.config, decoding)
        notes.append(
            f"Words are aligned by encoder-decoder attention of layer {layer},"
            f" head {decoding.alignment_head}: where a token is written, it"
            " attends to the source of the token before."
        )
    if len(translator.models) > 1:
        notes.append("The first model of the ensemble has this attention.")
    maps = translator.model.attention_maps(
        {
            "source_ids": np.array([source_ids], np.int32),
            "target_ids": shift_right(np.array([ids], np.int32)),
        }
    )
    return AttentionFigure(
        " ".join([*filter(None, [told.before]), text]),
        target,
        _pieces(both.source, source_ids, words),
        _pieces(both.target, ids, set(ids[:num_given])),
        {name: np.asarray(of)[0] for name, of in maps._asdict().items()},
        languages,
        reference is not None,
        notes,
        [sign.text for sign in row.reading.signs + row.prefix.signs],
    )


def _pieces(tokenizer, ids, words):
    """Returns the pieces of ids. A piece of an id in `words` starts a word."""
    pieces = tokenizer.pieces
    return [
        SPACE + pieces[i].removeprefix(SPACE) if i in words else pieces[i]
        for i in ids
    ]


def _shown(piece):
    """Makes a `Token` of a piece."""
    if piece in SPECIAL_PIECES:
        return Token(SPECIAL_PIECES[piece], True, True)
    starts = piece.startswith(SPACE)
    shown = piece.removeprefix(SPACE).replace(SPACE, " ")
    return Token(shown or "\u2423", starts, False)


def _name_unknown(texts):
    """Returns a list with a note on unknown texts, or an empty list."""
    distinct = list(dict.fromkeys(texts))
    if not distinct:
        return []
    listed = ", ".join(map(_named, distinct[:NAMED]))
    more = len(distinct) - NAMED
    ending = f" and {more} more" if more > 0 else ""
    return [f"Not in the vocabulary, not read: {listed}{ending}."]


def _named(text):
    """Adds the Unicode code and name to a text of one character."""
    if len(text) > 1:
        return text
    name = " ".join([f"U+{ord(text):04X}", unicodedata.name(text, "")])
    return f"{text} ({name.rstrip()})"


def _marked(token):
    """Puts a dot before a token that continues a word.

    Chinese and Japanese, which are written without spaces, get no dots.
    """
    if token.starts or is_wide(token.text[0]):
        return token.text
    return f"\u00b7{token.text}"


def _check_map(kind, weights, num_queries, num_keys):
    """Raises ValueError unless weights fit the tokens and rows sum to 1."""
    expect(
        weights.ndim == 4 and weights.shape[2:] == (num_queries, num_keys),
        f"weights of {kind!r} [layers, heads, {num_queries}, {num_keys}]",
        weights.shape,
    )
    error = np.abs(weights.sum(axis=-1) - 1).max()
    expect(
        error <= ROW_ERROR,  # NaN is not
        f"rows of the weights of {kind!r} that sum to 1",
        f"one that is off by {error:.3g}",
    )


def quantize(weights: np.ndarray) -> np.ndarray:
    """Scales rows [..., S] that sum to 1 to uint16 rows that sum to `WHOLE`.

    Rounds down, except where this would lose the most.

    >>> quantize(np.array([[0.5, 0.25, 0.25]])).tolist()
    [[32767, 16384, 16384]]
    """
    exact = np.asarray(weights, np.float64)
    exact = exact / exact.sum(axis=-1, keepdims=True) * WHOLE
    floor = np.floor(exact)
    missing = WHOLE - floor.sum(axis=-1, keepdims=True)
    order = np.argsort(floor - exact, axis=-1, kind="stable")
    rank = np.argsort(order, axis=-1, kind="stable")
    return (floor + (rank < missing)).astype(np.uint16)


def _pack(maps):
    """Encodes weights as text: uint16, all low bytes, then all high bytes."""
    numbers = np.concatenate([quantize(weights).ravel() for weights in maps])
    bytes_of = numbers.astype("<u2").view(np.uint8).reshape(-1, 2)
    # Separated, because the high bytes are mostly equal and compress well.
    return base64.b64encode(zlib.compress(bytes_of.T.tobytes(), 9)).decode()
