"""The routes of the server, and what all answers have in common."""

import asyncio
import hashlib
import hmac
import pathlib
import time
import traceback
import typing
from collections.abc import Awaitable, Callable

from absl import logging
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from trainers.serving import libretranslate, page, spec, translations
from trainers.serving.requests import ApiError, read_fields
from trainers.serving.service import Service

Handler = Callable[[Service, dict], Awaitable[typing.Any]]
HUNG_UP = 499  # nobody reads it; metrics count it
SNIFFED = {"X-Content-Type-Options": "nosniff"}


def make_app(service: Service) -> Starlette:
    """The ASGI application of a service.

    Args:
        service: The `Service`.

    Raises:
        OSError, ValueError: The file of API keys cannot be used.
    """
    posts = {
        "/translate": (libretranslate.translate, True),
        "/detect": (libretranslate.detect, True),
        "/v1/translate": (translations.translate, False),
        "/v1/attention": (translations.draw_attention, True),
    }
    keys = read_keys(service.options.api_keys)
    routes = [
        Route(path, _Post(service, keys, path, *post), methods=["POST"])
        for path, post in posts.items()
    ]
    document = spec.describe(service)
    for path, answer in {
        "/": lambda: _page(),
        "/languages": lambda: _json(libretranslate.list_languages(service)),
        "/frontend/settings": lambda: _json(libretranslate.describe(service)),
        "/spec": lambda: _json(document),
        "/health": lambda: _health(service),
        "/metrics": lambda: Response(
            service.metrics.text(), media_type=CONTENT_TYPE_LATEST
        ),
    }.items():
        routes.append(Route(path, _get(answer), methods=["GET"]))
    middleware = []
    if service.options.cors_origins:
        middleware.append(
            Middleware(
                CORSMiddleware,
                allow_origins=service.options.cors_origins,
                allow_methods=["GET", "POST"],
                allow_headers=["Content-Type"],
            )
        )
    application = Starlette(
        routes=routes,
        middleware=middleware,
        exception_handlers={
            HTTPException: _refuse,
            ApiError: lambda request, error: error_response(error),
        },
    )
    application.router.redirect_slashes = False
    return application


class _Post:
    """An endpoint that works for clients: an ASGI application.

    Args:
        service: The `Service`.
        keys: Digests of the API keys; None if no key is needed.
        path: The path.
        handler: Function of the service and the fields of the request.
        forms: As in `read_fields`.
    """

    def __init__(self, service, keys, path, handler, forms):
        self._service, self._keys = service, keys
        self._path, self._handler, self._forms = path, handler, forms

    async def __call__(self, scope, receive, send):
        started = time.monotonic()
        try:
            response = await self._answer(Request(scope, receive))
        except ApiError as error:
            response = error_response(error)
        except ClientDisconnect:
            response = Response(status_code=HUNG_UP)
        except Exception as error:
            _log(error)
            response = error_response(ApiError(500, "the server has failed"))
        self._service.metrics.observe_request(
            self._path, response.status_code, time.monotonic() - started
        )
        if self._service.phase == "draining":
            response.headers["Connection"] = "close"
        await response(scope, receive, send)

    async def _answer(self, request):
        """The response, within the time that a request has."""
        self._service.check_ready()
        limits = self._service.limits
        fields = await read_fields(request, limits, self._forms)
        _check_key(self._keys, fields.get("api_key"))
        work = asyncio.ensure_future(self._handler(self._service, fields))
        hang_up = asyncio.ensure_future(_hang_up(request.receive))
        try:
            await asyncio.wait(
                (work, hang_up),
                timeout=self._service.options.request_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if work.done():
                return _response(work.result())
            if hang_up.done():
                raise ClientDisconnect
            raise ApiError(
                504,
                "the translation took longer than"
                f" {self._service.options.request_seconds:g} seconds",
            )
        finally:
            for task in (work, hang_up):
                task.cancel()
            # Their work leaves the queue before this request is over.
            await asyncio.gather(work, hang_up, return_exceptions=True)


async def _hang_up(receive):
    """Returns when the client closes the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _response(answer):
    """The response of a handler's result: a page, or JSON."""
    if isinstance(answer, str):
        policy = {"Content-Security-Policy": "frame-ancestors 'self'"}
        return HTMLResponse(answer, headers=SNIFFED | policy)
    return _json(answer)


def _json(answer, status=200, headers=None):
    return JSONResponse(answer, status, headers=SNIFFED | (headers or {}))


def error_response(error: ApiError) -> Response:
    """The answer to a request that is refused."""
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    return _json({"error": str(error)}, error.status, headers)


def _refuse(request, error):
    """The answer to a path or method that does not exist."""
    return _json({"error": error.detail}, error.status_code, error.headers)


def _get(answer):
    """An endpoint without fields."""

    async def endpoint(request):
        return answer()

    return endpoint


def _page():
    html, policy = page.render()
    headers = {"Content-Security-Policy": policy}
    return HTMLResponse(html, headers=SNIFFED | headers)


def _health(service):
    service.check_ready()
    return _json({"status": "ok"})


def _log(error):
    """Logs a failure without its message, which may have a user's text."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    logging.error("%s\n%s", type(error).__name__, frames)


# API keys


def read_keys(path: str | None) -> list[bytes] | None:
    """The digests of the keys in a file, or None without one.

    Args:
        path: Path of a text file with a key in each line; blank lines and those
            that begin with # are skipped.

    Raises:
        OSError, ValueError: It cannot be read, or has no key.
    """
    if path is None:
        return None
    lines = map(str.strip, pathlib.Path(path).read_text("utf-8").splitlines())
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise ValueError(
            f"expected a key in each line. Received: api_keys={path!r}"
        )
    return [_digest(key) for key in keys]


def _digest(key):
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def _check_key(keys, key):
    """Raises ApiError unless a request's key is one of the known ones."""
    if keys is None:
        return
    if not isinstance(key, str) or not key:
        raise ApiError(403, "api_key is missing")
    digest = _digest(key)
    # All are compared, so that the time tells nothing.
    if not sum(hmac.compare_digest(digest, known) for known in keys):
        raise ApiError(403, "api_key is not known")
