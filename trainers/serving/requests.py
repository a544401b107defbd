"""Bodies of requests: read within limits, checked, or refused with one line.

What is wrong is an `HTTPException` with status 400, 413 or 415.
"""

import asyncio
import contextlib
import json
import pathlib
import re
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence

import starlette.requests
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

from keras_transformer import documents
from keras_transformer.documents.charsets import decode
from keras_transformer.fields import Fields, hp
from keras_transformer.translation.glossary import Glossary
from keras_transformer.translation.requests import Request, Terminology
from trainers.serving.options import Limits
from trainers.serving.spec import FILE_FORM, JSON, TEXT, TEXTS, Post, Schema

AUTO = "auto"  # the language is detected
FORM_FIELDS = 100
CHARSET = re.compile(r"\bcharset\s*+=\s*+\"?([^\s\";]++)", re.I)
SUFFIXES = tuple(
    suffix
    for reader in documents.READERS.values()
    for suffix in reader.suffixes
)
# Search options of a request. The others would change how much memory a search
# takes, or which programs serve the usual requests.
SEARCH_FIELDS = (
    "beam_size",
    "length_penalty",
    "min_length",
    "no_repeat_ngram",
    "sampling",
    "num_samples",
    "temperature",
    "top_k",
    "top_p",
    "epsilon",
    "consensus",
)
Values = Mapping[str, typing.Any]  # the fields of a request, by name


class TranslationRequest(Fields):
    """A request to translate, without its texts and its search options."""

    source: str = hp(AUTO, "Language code of the text; auto: detected.")
    target: str = hp("", "Language code of the translation. Required.")
    format: str = hp(
        "text", "Format of the texts.", choices=documents.TEXT_FORMATS
    )
    n_best: int = hp(1, "Number of translations, best first.", low=1)
    seed: int | None = hp(
        None,
        "Sampling: the same seed draws the same samples. Default: others each"
        " time.",
        low=0,
        high=2**32 - 1,
    )
    split: bool = hp(
        True, "Texts are split into sentences; if not, each is one sentence."
    )
    adapter: str = hp(
        "", "Name of an adapter of the server. Default: the model itself."
    )
    details: bool = hp(
        False, "Probabilities of tokens and words, and the alignment of words."
    )


# What a request may have for each text, as a field of its `Request`: a text, or
# a list of as many texts as there are. Each is of one sentence.
PER_TEXT = {"prefix": TEXTS}
# What a request may have for all of its texts, as their `Terminology`.
TERMINOLOGY: dict[str, Schema] = {
    "glossary": {
        "description": "The name of a glossary of the server, or an object of"
        " terms and their translations; | separates alternatives. A form has"
        " the object as JSON.",
        "oneOf": [TEXT, {"type": "object", "additionalProperties": TEXT}],
    },
    "glossary_id": {"description": "The same as glossary.", **TEXT},
    "avoid": {
        "description": "Words and phrases that translations do not have.",
        **TEXTS,
    },
}


class Body:
    """The body of a request: an ASGI channel with a limit."""

    def __init__(self, receive: Receive, max_bytes: int):
        self._receive, self._max_bytes = receive, max_bytes
        self._size, self._has_more = 0, True

    async def receive(self) -> Message:
        """The next message."""
        message = await self._next()
        if self._size > self._max_bytes:
            raise HTTPException(
                413, f"expected a body of at most {self._max_bytes} bytes"
            )
        return message

    async def discard(self, max_bytes: int, seconds: float) -> None:
        """Receives the rest, up to so many bytes in all, for so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._has_more and self._size < max_bytes:
                    await self._next()

    async def _next(self):
        message = await self._receive()
        self._has_more = message.get("more_body", False)
        self._size += len(message.get("body", b""))
        return message


async def read_fields(
    request: starlette.requests.Request, post: Post
) -> dict[str, typing.Any]:
    """The fields of a body: a JSON object, or, if it may be one, a form.

    With a form the fields of the query count, too, and a field that is given
    several times is a list. With a file, the field `address` is the address of
    the server, as the client sees it.
    """
    kind = request.headers.get("content-type", "").partition(";")[0]
    kind = kind.strip().lower()
    is_json = kind == JSON or kind.endswith("+json")
    if is_json and JSON in post.kinds:
        return parse_json(await request.body())
    if is_json or post.kinds == (JSON,):
        raise HTTPException(
            415,
            f"expected a body of Content-Type {post.kinds[0]}. Received:"
            f" {kind!r}",
        )
    has_file = post.kinds == FILE_FORM
    try:
        charset = CHARSET.search(request.headers.get("content-type", ""))
        decode(b"", None, charset[1] if charset else "utf-8")
        form = await request.form(
            max_files=int(has_file), max_fields=FORM_FIELDS
        )
        items = [*request.query_params.multi_items(), *form.multi_items()]
        "".join(n + v for n, v in items if isinstance(v, str)).encode()
    except (LookupError, ValueError) as error:  # of a charset, of surrogates
        raise HTTPException(400, f"expected a form: {error}") from error
    fields = _merged(request.query_params.multi_items())
    fields |= _merged(form.multi_items())
    return fields | ({"address": str(request.base_url)} if has_file else {})


def _merged(items):
    """Fields by name; the values of a repeated name are a list."""
    values: dict[str, list] = {}
    for name, value in items:
        values.setdefault(name, []).append(value)
    return {n: v if len(v) > 1 else v[0] for n, v in values.items()}


def parse_json(body: bytes) -> dict[str, typing.Any]:
    """The JSON object that a body is, each name once."""

    def unique(pairs: list[tuple[str, typing.Any]]) -> dict:
        fields = dict(pairs)
        if len(fields) < len(pairs):
            raise ValueError("a name occurs twice in an object")
        return fields

    try:
        fields = json.loads(body, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"expected a JSON object: {error}") from error
    if not isinstance(fields, dict):
        raise HTTPException(
            400, f"expected a JSON object. Received: {fields!r}"
        )
    return fields


def read_texts(fields: Values, name: str, limits: Limits) -> list[str]:
    """The texts of a field that is a text or a list of texts."""
    value = fields.get(name)
    if value in (None, "", []):
        raise HTTPException(400, f"{name} is missing")
    texts: list[typing.Any] = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        raise HTTPException(
            400, f"{name} must be a text or a list of texts. Received: {value}"
        )
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        raise HTTPException(
            400, f"{name} must be Unicode: {error.reason}"
        ) from error
    for number, most, unit in (
        (len(texts), limits.max_texts, "texts"),
        (sum(map(len, texts)), limits.max_characters, "characters"),
    ):
        if number > most:
            raise HTTPException(
                400,
                f"{name} must have at most {most} {unit}. Received: {number}",
            )
    return texts


def read_file(fields: Values, name: str) -> tuple[str, typing.BinaryIO]:
    """A field that is a file: its name, with one of `SUFFIXES`, and itself."""
    value = fields.get(name)
    if not isinstance(value, UploadFile):
        raise HTTPException(400, f"{name} must be a file")
    path = pathlib.PureWindowsPath(value.filename or "")  # knows both slashes
    if path.suffix.lower() not in SUFFIXES:
        raise HTTPException(
            400,
            f"{name} must have one of the suffixes {' '.join(SUFFIXES)}."
            f" Received: {path.name!r}",
        )
    return path.name, value.file


def read_requests(
    fields: Values, options: TranslationRequest, limits: Limits
) -> list[Request]:
    """The texts of the field `text`, with those of `PER_TEXT`."""
    texts = read_texts(fields, "text", limits)
    columns: dict[str, typing.Any] = {}
    for name in PER_TEXT:
        if fields.get(name, "") in ("", [], [""] * len(texts)):
            continue
        columns[name] = read_texts(fields, name, limits)
        if options.split:
            raise HTTPException(400, f"{name} needs split=false")
        if len(columns[name]) != len(texts):
            raise HTTPException(
                400,
                f"{name} must have one text for each text. Received:"
                f" {len(columns[name])} for {len(texts)}",
            )
    return [
        Request(text, **{name: of[i] for name, of in columns.items()})
        for i, text in enumerate(texts)
    ]


def read_terminology(
    fields: Values, glossaries: Mapping[str, Glossary], limits: Limits
) -> Terminology:
    """The terminology of a request; `glossaries` are those of the server."""
    avoid: Sequence[str] = ()
    if fields.get("avoid") not in (None, "", []):
        avoid = read_texts(fields, "avoid", limits)
    with bad_values():
        glossary = _read_glossary(fields, glossaries, limits)
        return Terminology(glossary, tuple(avoid))


def _read_glossary(fields, glossaries, limits):
    """The glossary of a request; ValueError if it is wrong."""
    value, other = fields.get("glossary"), fields.get("glossary_id")
    if value and other:
        raise ValueError("expected glossary or glossary_id. Received: both")
    value = value or other or {}
    if isinstance(value, str) and value.startswith("{"):  # of a form
        value = parse_json(value.encode())
    if isinstance(value, str):
        if value in glossaries:
            return glossaries[value]
        expected = f"one of: {', '.join(glossaries) or 'there are none'}"
    elif not isinstance(value, dict) or not all(
        isinstance(targets, str) for targets in value.values()
    ):
        expected = "a name, or an object of terms and their translations"
    else:
        forms = [form for of in value.values() for form in of.split("|")]
        longest = max(map(len, [*value, *forms]), default=0)
        for number, most, unit in (
            (len(value), limits.max_terms, "terms"),
            (len(forms), limits.max_forms, "translations"),
            (longest, limits.max_term_characters, "characters a term"),
        ):
            if number > most:
                expected, value = f"of at most {most} {unit}", number
                break
        else:
            return Glossary.of(value)
    raise ValueError(f"glossary must be {expected}. Received: {value!r}")


def read_text(fields: Values, name: str, default: str | None = None) -> str:
    """A field that is a text, such as a language code."""
    value = fields.get(name) or default
    if value is None:
        raise HTTPException(400, f"{name} is missing")
    if not isinstance(value, str):
        raise HTTPException(400, f"{name} must be a text. Received: {value!r}")
    return value


def read_alternatives(fields: Values, limits: Limits) -> int:
    """LibreTranslate's number of alternatives, which a form sends as text."""
    value = fields.get("alternatives") or 0
    try:
        alternatives = int(str(value))
    except ValueError:
        alternatives = -1
    if not 0 <= alternatives <= limits.max_alternatives:
        raise HTTPException(
            400,
            "alternatives must be a whole number, at most"
            f" {limits.max_alternatives}. Received: {value!r}",
        )
    return alternatives


def read_options(
    fields: Values, others: Collection[str] = ()
) -> tuple[TranslationRequest, dict[str, typing.Any]]:
    """The options of a request, and fields of `DecodingConfig`, unchecked yet.

    The fields `others` are read elsewhere.
    """
    own = TranslationRequest.__dataclass_fields__
    known = [*others, *own, *SEARCH_FIELDS]
    for name in fields:
        if name not in known:
            raise HTTPException(
                400,
                f"there is no such field. Received: {name!r}. Expected:"
                f" {', '.join(known)}",
            )
    with bad_values():
        options = TranslationRequest(**_chosen(fields, own))
    return options, _chosen(fields, SEARCH_FIELDS)


def _chosen(fields, names):
    """The fields that have one of some names."""
    return {name: fields[name] for name in names if name in fields}


@contextlib.contextmanager
def bad_values() -> Iterator[None]:
    """Turns errors of checked values into errors of the request."""
    try:
        yield
    except ValueError as error:
        raise HTTPException(400, str(error)) from error
