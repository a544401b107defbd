"""Bodies of requests: read within limits, checked, or refused with one line."""

import contextlib
import dataclasses
import json
import re
import typing
from collections.abc import Collection, Iterator, Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request

from keras_transformer.config import DecodingConfig
from keras_transformer.fields import Fields, check_values, hp
from trainers.serving.config import Limits

SHOWN = 200  # characters of a received value in an error
FORM_FIELDS = 100
# Search options of a request. The others would change how much memory a search
# takes, or which programs serve the usual requests.
SEARCH_FIELDS = (
    "beam_size",
    "length_penalty",
    "min_length",
    "no_repeat_ngram",
    "sampling",
    "temperature",
    "top_k",
    "top_p",
)


# Not Markdown: the time to read it grows with the square of its length.
FORMATS = ("text", "html", "xliff", "srt", "po")


class ApiError(Exception):
    """A request that is answered with an error.

    Attributes:
        status: The status of the answer.
        retry_after: Seconds after which the client may try again, or None.
    """

    def __init__(
        self, status: int, message: str, retry_after: int | None = None
    ):
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


@dataclasses.dataclass(frozen=True)
class TranslationRequest(Fields):
    """A request at /v1/translate, besides its texts and its search options."""

    source: str = hp("auto", "Language code of the text; auto: detected.")
    target: str = hp("", "Language code of the translation. Required.")
    format: str = hp("text", "Format of the texts.", choices=FORMATS)
    n_best: int = hp(1, "Number of translations, best first.", low=1)
    seed: int | None = hp(
        None, "Sampling: the same seed draws the same samples.", low=0
    )
    split: bool = hp(
        True, "Texts are split into sentences; if not, each is one sentence."
    )
    details: bool = hp(
        False, "Probabilities of tokens and words, and the alignment of words."
    )


async def read_fields(
    request: Request, limits: Limits, forms: bool
) -> dict[str, typing.Any]:
    """The fields of a body: a JSON object, or a form.

    Args:
        request: The request.
        limits: The `Limits`.
        forms: Whether forms are accepted besides JSON; the fields of the query
            count, too.

    Raises:
        ApiError: The body is too long or cannot be read.
    """
    kind = request.headers.get("content-type", "").partition(";")[0]
    kind = kind.strip().lower()
    is_json = kind == "application/json" or kind.endswith("+json")
    if not is_json and not forms:
        raise ApiError(
            415,
            "expected a body of Content-Type application/json. Received:"
            f" {_shown(kind)}",
        )
    request = Request(
        request.scope, _limited(request.receive, limits.max_body_bytes)
    )
    if is_json:
        return parse_json(await request.body())
    try:
        form = await request.form(max_files=0, max_fields=FORM_FIELDS)
    except HTTPException as error:
        raise ApiError(400, f"expected a form: {error.detail}") from error
    return dict([*request.query_params.multi_items(), *form.multi_items()])


def _limited(receive, max_bytes):
    """The channel of a request, which fails when the body is too long."""
    size = 0

    async def receive_within_limit():
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > max_bytes:
            raise ApiError(413, f"expected a body of at most {max_bytes} bytes")
        return message

    return receive_within_limit


def parse_json(body: bytes) -> dict[str, typing.Any]:
    """The JSON object that a body is.

    Raises:
        ApiError: It is none, in UTF-8, with each name once and numbers that
            JSON knows.
    """
    try:
        fields = json.loads(
            body.decode("utf-8"),
            parse_constant=_refuse_constant,
            object_pairs_hook=_unique_fields,
        )
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"expected a JSON object: {error}") from error
    if not isinstance(fields, dict):
        raise ApiError(
            400, f"expected a JSON object. Received: {_shown(fields)}"
        )
    return fields


def _refuse_constant(name):
    raise ValueError(f"{name} is no JSON number")


def _unique_fields(pairs):
    """The fields of an object."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a name occurs twice in an object")
    return fields


def read_texts(
    fields: Mapping[str, typing.Any], name: str, limits: Limits
) -> tuple[list[str], bool]:
    """The texts of a field that is a text or a list of texts.

    Args:
        fields: The fields of the request.
        name: The field.
        limits: The `Limits`.

    Returns:
        The texts, and whether they were a list.

    Raises:
        ApiError: The field is missing or empty, has another type, or exceeds
            a limit.
    """
    value = fields.get(name)
    texts: list[typing.Any] = value if isinstance(value, list) else [value]
    if value is None or value == "" or not texts:
        raise ApiError(400, f"{name} is missing")
    for text in texts:
        if not isinstance(text, str):
            raise ApiError(
                400,
                f"{name} must be a text or a list of texts. Received:"
                f" {_shown(text)}",
            )
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ApiError(
                400, f"{name} must be Unicode: {error.reason}"
            ) from error
    if len(texts) > limits.max_texts:
        raise ApiError(
            400,
            f"{name} must have at most {limits.max_texts} texts. Received:"
            f" {len(texts)}",
        )
    characters = sum(map(len, texts))
    if characters > limits.max_characters:
        raise ApiError(
            400,
            f"{name} must have at most {limits.max_characters} characters."
            f" Received: {characters}",
        )
    return texts, isinstance(value, list)


def read_alternatives(fields: Mapping[str, typing.Any], limits: Limits) -> int:
    """LibreTranslate's number of alternatives, which a form sends as text.

    Raises:
        ApiError: It is no number, or exceeds the limit.
    """
    value = fields.get("alternatives") or 0
    if isinstance(value, str) and re.fullmatch("[0-9]{1,9}", value):
        value = int(value)
    if type(value) is not int or not 0 <= value <= limits.max_alternatives:
        raise ApiError(
            400,
            "alternatives must be a whole number, at most"
            f" {limits.max_alternatives}. Received: {_shown(value)}",
        )
    return value


def read_options(
    fields: Mapping[str, typing.Any], others: Collection[str]
) -> tuple[TranslationRequest, dict[str, typing.Any]]:
    """The options of a request at /v1/translate.

    Args:
        fields: The fields of the request.
        others: Names of the fields that are read elsewhere.

    Returns:
        The `TranslationRequest`, and fields of `DecodingConfig`.

    Raises:
        ApiError: A field is unknown, or its value wrong.
    """
    own = TranslationRequest.__dataclass_fields__
    for name in fields:
        if name not in (*own, *SEARCH_FIELDS, *others):
            raise ApiError(
                400,
                f"there is no such field. Received: {_shown(name)}. Expected:"
                f" {', '.join([*others, *own, *SEARCH_FIELDS])}",
            )
    search = {name: fields[name] for name in SEARCH_FIELDS if name in fields}
    with bad_values():
        check_values(DecodingConfig, **search)
        return (
            TranslationRequest(**{n: fields[n] for n in own if n in fields}),
            search,
        )


@contextlib.contextmanager
def bad_values() -> Iterator[None]:
    """Turns errors of checked values into errors of the request."""
    try:
        yield
    except ValueError as error:
        message = str(error)
        if len(message) > 2 * SHOWN:
            message = f"{message[: 2 * SHOWN]} ..."
        raise ApiError(400, message) from error


def read_text_option(
    fields: Mapping[str, typing.Any], name: str, default: str | None = None
) -> str:
    """A field that is a text, such as a language code.

    Raises:
        ApiError: It has another type, or is missing and has no default.
    """
    value = fields.get(name) or default
    if value is None:
        raise ApiError(400, f"{name} is missing")
    if not isinstance(value, str):
        raise ApiError(400, f"{name} must be a text. Received: {_shown(value)}")
    return value


def _shown(value):
    """A received value, as the end of an error."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} ..."
