"""The form of the server's APIs, and their description in OpenAPI.

An API is a module of this folder that defines an `Api`: its paths, their
fields, and the form of its errors. `trainers.serving.app.APIS` lists all APIs.
"""

import dataclasses
import re
import typing
from collections.abc import Awaitable, Callable, Collection, Mapping

from keras_transformer.base.fields import kinds_of

TYPES = {int: "integer", float: "number", bool: "boolean", str: "string"}
LIMITS = {
    "low": "minimum",
    "high": "maximum",
    "below": "exclusiveMaximum",
    "choices": "enum",
}
Schema = dict[str, typing.Any]
TEXT: Schema = {"type": "string"}
TEXTS: Schema = {"oneOf": [TEXT, {"type": "array", "items": TEXT}]}
FILE: Schema = {"type": "string", "format": "binary"}
JSON = "application/json"
FILE_FORM = ("multipart/form-data",)
FORMS = (JSON, "application/x-www-form-urlencoded", *FILE_FORM)


class Get(typing.NamedTuple):
    """The GET method of a path.

    Attributes:
        summary: One line about it.
        answer: A function of the `Service` and, by name, the parts of the path
            in braces. It returns a JSON value or a
            `starlette.responses.Response`.
    """

    summary: str
    answer: Callable[..., typing.Any]


class Post(typing.NamedTuple):
    """The POST method of a path.

    Attributes:
        summary: One line about it.
        answer: A coroutine function of the `Service` and the request's fields,
            which it checks. It returns the same as in `Get`.
        required, optional: The schemas of the fields by name, for the
            description.
        kinds: The content types of the body: `FORMS`, JSON only, or
            `FILE_FORM`.
    """

    summary: str
    answer: Callable[..., Awaitable[typing.Any]]
    required: Mapping[str, Schema]
    optional: Mapping[str, Schema] = {}
    kinds: tuple[str, ...] = FORMS


class Api(typing.NamedTuple):
    """The paths of an API, and the form of their errors.

    Attributes:
        gets, posts: The methods, by path.
        error: Makes the JSON value of an error from its status and message.
    """

    gets: Mapping[str, Get] = {}
    posts: Mapping[str, Post] = {}
    error: Callable[[int, str], typing.Any] = lambda status, message: {
        "error": message
    }


def describe(apis: Collection[Api]) -> Schema:
    """Makes the OpenAPI document of some APIs."""
    paths: Schema = {}
    for api in apis:
        for path, get in api.gets.items():
            place = {"in": "path", "required": True, "schema": TEXT}
            paths[path] = {
                "get": _operation(get.summary, api),
                "parameters": [
                    {"name": name} | place
                    for name in re.findall(r"{(\w+)}", path)
                ],
            }
        for path, post in api.posts.items():
            body = {"requestBody": _body(post)}
            paths[path] = {"post": _operation(post.summary, api) | body}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Translation", "version": "1"},
        "paths": paths,
    }


def schemas_of(
    section: type, names: Collection[str] | None = None
) -> dict[str, Schema]:
    """Makes the schemas of `hp` fields, by name. None selects all fields."""
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


def _body(post):
    schema = {
        "type": "object",
        "properties": {**post.required, **post.optional, "api_key": TEXT},
        "required": list(post.required),
    }
    content = dict.fromkeys(post.kinds, {"schema": schema})
    return {"required": True, "content": content}


def _operation(summary, api):
    error = {"example": api.error(400, "What was expected and received.")}
    answers = {
        "200": {"description": "The answer."},
        "default": {
            "description": "An error; 429 and 503 have Retry-After.",
            "content": {JSON: error},
        },
    }
    return {"summary": summary, "responses": answers}
