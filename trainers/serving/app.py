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
from trainers.serving.requests import Body, read_fields
from trainers.serving.service import Service

Handler = Callable[[Service, dict], Awaitable[typing.Any]]
# The requests that are work, and whether each may be a form, too.
HANDLERS: dict[str, tuple[Handler, bool]] = {
    "/translate": (libretranslate.translate, True),
    "/detect": (libretranslate.detect, True),
    "/v1/translate": (translations.translate, False),
    "/v1/attention": (translations.draw_attention, True),
}
HUNG_UP = 499  # nobody reads it; metrics count it
LONGEST_ERROR = 500  # characters; more is a value that was received


def make_app(service: Service) -> Starlette:
    """The ASGI application of a service.

    Args:
        service: The `Service`.

    Raises:
        OSError, ValueError: The file of API keys cannot be used.
    """
    keys = read_keys(service.options.api_keys)
    answers: dict[str, Callable[[], Response]] = {
        "/": _page,
        "/languages": lambda: JSONResponse(
            libretranslate.list_languages(service)
        ),
        "/frontend/settings": lambda: JSONResponse(
            libretranslate.describe(service)
        ),
        "/spec": lambda: JSONResponse(spec.describe(service)),
        "/health": lambda: _health(service),
        "/metrics": lambda: Response(
            service.metrics.text(), media_type=CONTENT_TYPE_LATEST
        ),
    }
    cors = Middleware(
        CORSMiddleware,
        allow_origins=service.options.cors_origins,
        allow_methods=["GET", "POST"],
        allow_headers=["Content-Type"],
    )
    application = Starlette(
        routes=[
            *(Route(path, _get(answer)) for path, answer in answers.items()),
            *(
                Route(path, _Post(service, keys, path), methods=["POST"])
                for path in HANDLERS
            ),
        ],
        middleware=[cors] if service.options.cors_origins else [],
        exception_handlers={HTTPException: lambda _, error: _refuse(error)},
    )
    application.router.redirect_slashes = False
    return application


def _get(answer):
    """An endpoint without fields."""

    async def endpoint(request):
        return answer()

    return endpoint


def _page():
    html, policy = page.render()
    return HTMLResponse(html, headers={"Content-Security-Policy": policy})


def _health(service):
    service.check_ready()
    return JSONResponse({"status": "ok"})


class _Post:
    """An endpoint that works for clients: an ASGI application.

    Args:
        service: The `Service`.
        keys: Digests of the API keys; None if no key is needed.
        path: The path, one of `HANDLERS`.
    """

    def __init__(self, service, keys, path):
        self._service, self._keys, self._path = service, keys, path

    async def __call__(self, scope, receive, send):
        started = time.monotonic()
        seconds = self._service.options.request_seconds
        body = Body(receive, self._service.limits.max_body_bytes)
        try:
            async with asyncio.timeout(seconds):
                response = await self._respond(scope, body)
        except TimeoutError:
            response = _refuse(
                HTTPException(
                    504, f"the request took longer than {seconds:g} seconds"
                )
            )
        self._service.metrics.observe_request(
            self._path, response.status_code, time.monotonic() - started
        )
        await response(scope, receive, send)

    async def _respond(self, scope, body):
        """The response, also to a request that fails."""
        try:
            return await self._answer(Request(scope, body.receive))
        except HTTPException as error:
            await body.discard()
            return _refuse(error)
        except ClientDisconnect:
            return Response(status_code=HUNG_UP)
        except Exception as error:
            _log(error)
            return _refuse(HTTPException(500, "the server has failed"))

    async def _answer(self, request):
        """The response of the handler."""
        self._service.check_ready()
        handler, forms = HANDLERS[self._path]
        fields = await read_fields(request, forms)
        _check_key(self._keys, fields.get("api_key"))
        work = asyncio.ensure_future(handler(self._service, fields))
        hang_up = asyncio.ensure_future(_hang_up(request.receive))
        try:
            await asyncio.wait(
                (work, hang_up), return_when=asyncio.FIRST_COMPLETED
            )
            if not work.done():
                raise ClientDisconnect
            return _response(work.result())
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
        policy = "frame-ancestors 'self'"
        return HTMLResponse(answer, headers={"Content-Security-Policy": policy})
    return JSONResponse(answer)


def _refuse(error):
    """The answer to a request that is refused."""
    message = error.detail
    if len(message) > LONGEST_ERROR:
        message = f"{message[:LONGEST_ERROR]} ..."
    return JSONResponse({"error": message}, error.status_code, error.headers)


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
    """Raises HTTPException unless a request's key is one of the known ones."""
    if keys is None:
        return
    if not isinstance(key, str) or not key:
        raise HTTPException(403, "api_key is missing")
    digest = _digest(key)
    # All are compared, so that the time tells nothing.
    if not sum(hmac.compare_digest(digest, known) for known in keys):
        raise HTTPException(403, "api_key is not known")
