"""The description of the API, in OpenAPI."""

import dataclasses
import typing

from keras_transformer.config import DecodingConfig
from keras_transformer.fields import kinds_of
from keras_transformer.translation import documents
from keras_transformer.translation.requests import Request
from trainers.serving.requests import SEARCH_FIELDS, TranslationRequest
from trainers.serving.service import Service

TYPES = {int: "integer", float: "number", bool: "boolean", str: "string"}
LIMITS = {"low": "minimum", "high": "exclusiveMaximum", "choices": "enum"}
Schema = dict[str, typing.Any]
TEXT: Schema = {"type": "string"}
TEXTS: Schema = {"oneOf": [TEXT, {"type": "array", "items": TEXT}]}
JSON = ("application/json",)
FORMS = (*JSON, "application/x-www-form-urlencoded", "multipart/form-data")
GETS = {
    "/languages": "The languages, each with those it is translated into.",
    "/frontend/settings": "Limits and defaults, for pages.",
    "/health": "Whether the server is ready.",
    "/metrics": "Metrics for Prometheus.",
}


def describe(service: Service) -> Schema:
    """The OpenAPI document of a service."""
    languages = {"source": TEXT, "target": TEXT}
    most = service.limits.max_alternatives
    posts = {
        "/translate": _post(
            "LibreTranslate's: translates a text or a list of texts.",
            {"q": TEXTS, **languages},
            {
                "format": {**TEXT, "enum": documents.FORMATS},
                "alternatives": {
                    "type": "integer",
                    "minimum": 0,
                    "maximum": most,
                },
            },
        ),
        "/detect": _post(
            "LibreTranslate's: the languages that a text may be in.",
            {"q": TEXT},
        ),
        "/v1/translate": _post(
            "Translates with search options, and tells all that is known.",
            {"text": TEXTS, "target": TEXT},
            {
                **{field.name: TEXTS for field in dataclasses.fields(Request)},
                **_schemas(TranslationRequest),
                **_schemas(DecodingConfig, SEARCH_FIELDS),
            },
            JSON,
        ),
        "/v1/attention": _post(
            "The page of the attention of a translation.",
            {"text": TEXT, "translation": TEXT, **languages},
        ),
    }
    gets = {path: {"get": _operation(what)} for path, what in GETS.items()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Translation", "version": "1"},
        "paths": gets | posts,
    }


def _schemas(section, names=None):
    """The schemas of fields made with `hp`, by name; by default of all."""
    schemas = {}
    for field in dataclasses.fields(section):
        if names and field.name not in names:
            continue
        kind, may_be_none = kinds_of(section)[field.name]
        name = TYPES[kind]
        schemas[field.name] = {
            "type": [name, "null"] if may_be_none else name,
            "description": field.metadata["help"],
        } | {
            key: field.metadata[limit]
            for limit, key in LIMITS.items()
            if field.metadata[limit] is not None
        }
    return schemas


def _post(what, required, optional=None, kinds=FORMS):
    """An operation with a body."""
    schema = {
        "type": "object",
        "properties": {"api_key": TEXT, **(optional or {}), **required},
        "required": list(required),
    }
    content = dict.fromkeys(kinds, {"schema": schema})
    body = {"required": True, "content": content}
    return {"post": _operation(what) | {"requestBody": body}}


def _operation(what):
    """An operation and its answers."""
    error = {"type": "object", "properties": {"error": TEXT}}
    answers = {
        "200": {"description": "The answer."},
        "default": {
            "description": "An error; 429 and 503 have Retry-After.",
            "content": {"application/json": {"schema": error}},
        },
    }
    return {"summary": what, "responses": answers}
