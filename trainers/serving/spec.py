"""The description of the API, in OpenAPI."""

import dataclasses
import typing

from keras_transformer.config import DecodingConfig
from keras_transformer.fields import kinds_of
from trainers.serving.requests import SEARCH_FIELDS, TranslationRequest
from trainers.serving.service import Service

TYPES = {int: "integer", float: "number", bool: "boolean", str: "string"}
Schema = dict[str, typing.Any]
TEXT: Schema = {"type": "string"}
TEXTS: Schema = {"oneOf": [TEXT, {"type": "array", "items": TEXT}]}
ERRORS = {
    400: "The request is wrong.",
    403: "The API key is missing or not known.",
    408: "The request came too slowly.",
    413: "The body is too long.",
    415: "The body has another type.",
    429: "There is too much work: try again after Retry-After seconds.",
    500: "The server has failed.",
    503: "The server is starting or ending: try again after Retry-After"
    " seconds.",
    504: "The translation took too long.",
}


def describe(service: Service) -> Schema:
    """The OpenAPI document of a service."""
    limits = service.limits
    api_key = {} if service.options.api_keys is None else {"api_key": TEXT}
    languages = {"source": TEXT, "target": TEXT}
    alternatives = {
        "type": "integer",
        "minimum": 0,
        "maximum": limits.max_alternatives,
    }
    libretranslate = {
        "q": TEXTS,
        **languages,
        "format": {"type": "string", "enum": ["text", "html"]},
        "alternatives": alternatives,
        **api_key,
    }
    own = {
        "text": TEXTS,
        "prefix": TEXTS,
        **_schemas(TranslationRequest, TranslationRequest.__dataclass_fields__),
        **_schemas(DecodingConfig, SEARCH_FIELDS),
        **api_key,
    }
    attention = {"text": TEXT, "translation": TEXT, **languages, **api_key}
    posts = {
        "/translate": (
            "LibreTranslate's: translates a text or a list of texts.",
            libretranslate,
            ["q", "source", "target"],
            True,
        ),
        "/detect": (
            "LibreTranslate's: the languages that a text may be in.",
            {"q": TEXT, **api_key},
            ["q"],
            True,
        ),
        "/v1/translate": (
            "Translates with search options, and tells all that is known.",
            own,
            ["text", "target"],
            False,
        ),
        "/v1/attention": (
            "The page of the attention of a translation.",
            attention,
            ["text", "translation", "source", "target"],
            True,
        ),
    }
    gets = {
        "/languages": "The languages, each with those it is translated into.",
        "/frontend/settings": "Limits and defaults, for pages.",
        "/health": "Whether the server is ready.",
        "/metrics": "Metrics for Prometheus.",
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Translation", "version": "1"},
        "paths": {
            **{path: {"get": _operation(what)} for path, what in gets.items()},
            **{path: {"post": _post(*post)} for path, post in posts.items()},
        },
    }


def _schemas(section, names):
    """The schemas of fields of a dataclass, by name."""
    fields = {field.name: field for field in dataclasses.fields(section)}
    return {
        name: _schema(fields[name], *kinds_of(section)[name]) for name in names
    }


def _schema(field, kind, may_be_none):
    """The schema of a field made with `hp`."""
    metadata, name = field.metadata, TYPES[kind]
    schema = {
        "type": [name, "null"] if may_be_none else name,
        "description": metadata["help"],
    }
    for key, value in (
        ("minimum", metadata["low"]),
        ("exclusiveMaximum", metadata["high"]),
        ("enum", metadata["choices"]),
    ):
        if value is not None:
            schema[key] = value
    return schema


def _post(what, properties, required, forms):
    """An operation with a body."""
    schema = {
        "type": "object",
        "properties": properties,
        "required": required,
    }
    kinds = ["application/json"]
    if forms:
        kinds += ["application/x-www-form-urlencoded", "multipart/form-data"]
    content = {kind: {"schema": schema} for kind in kinds}
    return _operation(what) | {
        "requestBody": {"required": True, "content": content}
    }


def _operation(what):
    """An operation and its answers."""
    error = {"type": "object", "properties": {"error": TEXT}}
    answers: Schema = {"200": {"description": "The answer."}}
    for status, description in ERRORS.items():
        answers[str(status)] = {
            "description": description,
            "content": {"application/json": {"schema": error}},
        }
    return {"summary": what, "responses": answers}
