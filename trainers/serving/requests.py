"""Reads the bodies of requests within limits, and checks fields and keys.

Errors are `HTTPException`s with status 400, 403, 413 or 415, and a line of
text.
"""

import asyncio
import contextlib
import functools
import hashlib
import hmac
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
from keras_transformer.base.fields import Fields, hp
from keras_transformer.base.refusals import expect
from keras_transformer.commands.flags import split_list
from keras_transformer.config import DecodingConfig
from keras_transformer.documents.charsets import decode
from keras_transformer.translation import abilities
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
SEARCH_FIELDS = abilities.names_with(
    abilities.ANY, abilities.SERVER, DecodingConfig
)
Values = Mapping[str, typing.Any]  # the fields of a request, by name


class BadRequest(HTTPException):
    """A request that is refused with status 400."""

    def __init__(self, message: str):
        super().__init__(400, message)


check = functools.partial(expect, error=BadRequest)


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
        "Seed of sampling: equal seeds draw equal samples. Default: a new"
        " seed.",
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
# a list of as many texts. Each is for one sentence.
PER_TEXT = dict.fromkeys(
    abilities.names_with(abilities.EACH_TEXT, abilities.SERVER, Request), TEXTS
)
# What a request may have for all of its texts. It becomes a `Terminology`.
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
    """The body of an ASGI request, of at most `max_bytes`."""

    def __init__(self, receive: Receive, max_bytes: int):
        self._receive, self._max_bytes = receive, max_bytes
        self._size, self._has_more = 0, True

    async def receive(self) -> Message:
        """Receives a message. Raises HTTPException if the body is too large."""
        message = await self._next()
        if self._size > self._max_bytes:
            raise HTTPException(
                413, f"expected a body of at most {self._max_bytes} bytes"
            )
        return message

    async def discard(self, max_bytes: int, seconds: float) -> None:
        """Drops the rest, until `max_bytes` of the body or the time is over."""
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
    """Reads the fields of a body: a JSON object, or a form if `post` allows it.

    A form also has the fields of the query. A field that is given several times
    is a list. If `post` takes a file, there is also `address`, the address of
    the server as the client sees it, and `client`, that of the client.
    """
    kind = request.headers.get("content-type", "").partition(";")[0]
    kind = kind.strip().lower()
    is_json = kind == JSON or kind.endswith("+json")
    if is_json and JSON in post.kinds:
        return parse_json(await request.body())
    if is_json or post.kinds == (JSON,):
        expected = f"expected a body of Content-Type {post.kinds[0]}"
        raise HTTPException(415, f"{expected}. Received: {kind!r}")
    has_file = post.kinds == FILE_FORM
    try:
        charset = CHARSET.search(request.headers.get("content-type", ""))
        decode(b"", None, charset[1] if charset else "utf-8")
        form = await request.form(
            max_files=int(has_file), max_fields=FORM_FIELDS
        )
        items = [*request.query_params.multi_items(), *form.multi_items()]
        "".join(n + v for n, v in items if isinstance(v, str)).encode()
    except (LookupError, ValueError) as error:  # bad charset, surrogates
        raise BadRequest(f"expected a form: {error}") from error
    fields = _merged(request.query_params.multi_items())
    fields |= _merged(form.multi_items())
    if has_file:
        fields["address"] = str(request.base_url)
        fields["client"] = request.client.host if request.client else ""
    return fields


def _merged(items):
    """Merges fields by name. The values of a repeated name are a list."""
    values: dict[str, list] = {}
    for name, value in items:
        values.setdefault(name, []).append(value)
    return {n: v if len(v) > 1 else v[0] for n, v in values.items()}


def parse_json(body: bytes) -> dict[str, typing.Any]:
    """Parses a JSON object. Raises BadRequest for others and repeated names."""

    def unique(pairs: list[tuple[str, typing.Any]]) -> dict:
        fields = dict(pairs)
        expect(len(fields) == len(pairs), "each name once in an object")
        return fields

    try:
        fields = json.loads(body, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"expected a JSON object: {error}") from error
    check(isinstance(fields, dict), "a JSON object", body=fields)
    return fields


def read_texts(fields: Values, name: str, limits: Limits) -> list[str]:
    """Reads a field that is a text or a list of texts. Returns a list."""
    value = fields.get(name)
    if value in (None, "", []):
        raise BadRequest(f"{name} is missing")
    texts: list[typing.Any] = value if isinstance(value, list) else [value]
    check(
        all(isinstance(text, str) for text in texts),
        f"{name} with a text or a list of texts",
        value,
    )
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        raise BadRequest(f"{name} must be Unicode: {error.reason}") from error
    for number, most, unit in (
        (len(texts), limits.max_texts, "texts"),
        (sum(map(len, texts)), limits.max_characters, "characters"),
    ):
        check(number <= most, f"{name} with at most {most} {unit}", number)
    return texts


def read_file(fields: Values, name: str) -> tuple[str, typing.BinaryIO]:
    """Returns the name, without folders, and the file of a file field."""
    value = fields.get(name)
    if not isinstance(value, UploadFile):
        raise BadRequest(f"{name} must be a file")
    path = pathlib.PureWindowsPath(value.filename or "")  # knows both slashes
    check(
        path.suffix.lower() in SUFFIXES,
        f"{name} with one of the suffixes {' '.join(SUFFIXES)}",
        name=path.name,
    )
    return path.name, value.file


def read_columns(fields: Values) -> list[tuple[str, str]]:
    """Reads the columns of a table, and those of their translations."""
    columns, into = (
        split_list(read_text(fields, name, "")) for name in ("columns", "into")
    )
    check(len(columns) == len(into), "as many columns in into", columns, into)
    return list(zip(columns, into, strict=True))


def read_requests(
    fields: Values, options: TranslationRequest, limits: Limits
) -> list[Request]:
    """Makes a `Request` of each text, with its fields in `PER_TEXT`."""
    texts = read_texts(fields, "text", limits)
    columns: dict[str, typing.Any] = {}
    for name in PER_TEXT:
        if fields.get(name, "") in ("", [], [""] * len(texts)):
            continue
        columns[name] = read_texts(fields, name, limits)
        with bad_values():
            abilities.check_value(
                abilities.SERVER, name, columns[name], Request, options
            )
        check(
            len(columns[name]) == len(texts),
            f"{name} with one text for each text",
            f"{len(columns[name])} for {len(texts)}",
        )
    return [
        Request(text, **{name: of[i] for name, of in columns.items()})
        for i, text in enumerate(texts)
    ]


def read_terminology(
    fields: Values, glossaries: Mapping[str, Glossary], limits: Limits
) -> Terminology:
    """Reads the terminology of a request. `glossaries` are the server's."""
    avoid: Sequence[str] = ()
    if fields.get("avoid") not in (None, "", []):
        avoid = read_texts(fields, "avoid", limits)
    with bad_values():
        glossary = _read_glossary(fields, glossaries, limits)
        return Terminology(glossary, tuple(avoid))


def _read_glossary(fields, glossaries, limits):
    """Reads the glossary of a request. Raises ValueError if it is wrong."""
    value, other = fields.get("glossary"), fields.get("glossary_id")
    expect(not (value and other), "glossary or glossary_id", "both")
    value = value or other or {}
    if isinstance(value, str) and value.startswith("{"):  # of a form
        value = parse_json(value.encode())
    if isinstance(value, str):
        known = ", ".join(glossaries) or "there are none"
        expect(value in glossaries, f"glossary of: {known}", glossary=value)
        return glossaries[value]
    expect(
        isinstance(value, dict)
        and all(isinstance(targets, str) for targets in value.values()),
        "glossary with a name, or an object of terms and their translations",
        glossary=value,
    )
    forms = [form for of in value.values() for form in of.split("|")]
    longest = max(map(len, [*value, *forms]), default=0)
    for number, most, unit in (
        (len(value), limits.max_terms, "terms"),
        (len(forms), limits.max_forms, "translations"),
        (longest, limits.max_term_characters, "characters a term"),
    ):
        expect(number <= most, f"glossary with at most {most} {unit}", number)
    return Glossary.of(value)


def read_text(fields: Values, name: str, default: str | None = None) -> str:
    """Reads a field that is a text, such as a language code."""
    value = fields.get(name) or default
    if value is None:
        raise BadRequest(f"{name} is missing")
    if not isinstance(value, str):
        raise BadRequest(f"{name} must be a text. Received: {value!r}")
    return value


def read_alternatives(fields: Values, limits: Limits) -> int:
    """Reads LibreTranslate's number of alternatives. A form has it as text."""
    value = fields.get("alternatives") or 0
    try:
        alternatives = int(str(value))
    except ValueError:
        alternatives = -1
    most = limits.max_alternatives
    check(
        0 <= alternatives <= most,
        f"alternatives with a whole number of at most {most}",
        alternatives=value,
    )
    return alternatives


def read_options(
    fields: Values, others: Collection[str] = ()
) -> tuple[TranslationRequest, dict[str, typing.Any]]:
    """Reads the options of a request, and unchecked fields of `DecodingConfig`.

    Raises BadRequest for unknown fields. `others` are read elsewhere.
    """
    own = TranslationRequest.__dataclass_fields__
    known = [*others, *own, *SEARCH_FIELDS]
    for name in fields:
        check(name in known, f"one of the fields {', '.join(known)}", name=name)
    with bad_values():
        options = TranslationRequest(**_chosen(fields, own))
    return options, _chosen(fields, SEARCH_FIELDS)


def _chosen(fields, names):
    return {name: fields[name] for name in names if name in fields}


@contextlib.contextmanager
def bad_values() -> Iterator[None]:
    """Raises BadRequest for a ValueError in the block."""
    try:
        yield
    except ValueError as error:
        raise BadRequest(str(error)) from error


# API keys


def read_keys(path: str | None) -> list[bytes] | None:
    """Reads the keys in a file, and returns their SHA-256 digests.

    Each line is a key. Blank lines and lines that begin with # are skipped.
    Returns None without a file. Raises ValueError if the file has no key.
    """
    if path is None:
        return None
    lines = map(str.strip, pathlib.Path(path).read_text("utf-8").splitlines())
    keys = [line for line in lines if line and not line.startswith("#")]
    expect(keys, "a key in each line", api_keys=path)
    return [_digest(key) for key in keys]


def _digest(key):
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def check_key(
    keys: list[bytes] | None,
    key: typing.Any,
    request: starlette.requests.Request,
) -> None:
    """Raises HTTPException with status 403 unless a request has a known key.

    It is the field `key`, or in one of the headers `X-API-Key: KEY`,
    `Authorization: KEY` and `Authorization: Bearer KEY`.
    """
    if keys is None:
        return
    headers = request.headers
    bare = re.sub(r"(?i)^bearer(\s+|$)", "", headers.get("authorization", ""))
    key = key or headers.get("x-api-key") or bare
    if not isinstance(key, str) or not key:
        raise HTTPException(403, "api_key is missing")
    digest = _digest(key)
    # Compares all keys, so that the time reveals nothing.
    if not sum(hmac.compare_digest(digest, known) for known in keys):
        raise HTTPException(403, "api_key is not known")
