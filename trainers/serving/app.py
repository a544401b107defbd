"""The ASGI application: its routes, with API keys, deadlines and errors."""

import asyncio
import time

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    RedirectResponse,
    Response,
)
from starlette.routing import Route

from trainers.serving import libretranslate, page, translations
from trainers.serving.access_log import AccessLog
from trainers.serving.metrics import HUNG_UP
from trainers.serving.reading import log_failure
from trainers.serving.requests import Body, check_key, read_fields
from trainers.serving.service import Service
from trainers.serving.spec import FILE_FORM, Api, Get, describe

# Limits on reading the rest of a request that is answered before its end.
DISCARD_BYTES = 2**26
DISCARD_SECONDS = 10.0
LONGEST_ERROR = 500  # characters; a longer one quotes a received value


def make_app(service: Service) -> Starlette:
    """Makes the ASGI application of a service."""
    cors = Middleware(
        CORSMiddleware,
        allow_origins=service.options.cors_origins,
        allow_methods=["GET", "POST"],
        allow_headers=["Authorization", "Content-Type", "X-API-Key"],
    )
    routes = []
    for api in APIS:
        for path, get in api.gets.items():
            routes += [
                Route(path, _get(service, get)),
                Route(f"{path}/", _without_slash),
            ]
        for path in api.posts:
            endpoint = _Post(service, api, path)
            routes.append(Route(path, endpoint, methods=["POST"]))
    bodies = Middleware(
        _Bodies,
        limits=service.limits,
        seconds=min(DISCARD_SECONDS, service.options.request_seconds),
    )
    notes = Middleware(AccessLog, service.metrics, service.options.access_log)
    application = Starlette(
        routes=routes,
        middleware=[notes, bodies]
        + [cors] * bool(service.options.cors_origins),
        exception_handlers={
            HTTPException: lambda _, error: _refuse(error, COMMON)
        },
    )
    application.router.redirect_slashes = False
    return application


def _get(service, get):
    async def endpoint(request):
        return _response(get.answer(service, **request.path_params))

    return endpoint


def _without_slash(request):
    """Leads from "/docs/" to "/docs", whatever folder a proxy gave us."""
    return RedirectResponse(f"../{request.url.path.split('/')[-2]}")


def _page(html, policy):
    return HTMLResponse(html, headers={"Content-Security-Policy": policy})


def _health(service):
    service.check_ready()
    return {"status": "ok"}


def _metrics(service):
    return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)


COMMON = Api(
    gets={
        "/": Get(
            "A page that translates as one types.",
            lambda _: _page(*page.render()),
        ),
        "/docs": Get(
            "This description as a page.",
            lambda _: _page(*page.render_docs(describe(APIS))),
        ),
        "/spec": Get("This description.", lambda _: describe(APIS)),
        "/favicon.ico": Get(
            "The icon of the pages.",
            lambda _: Response(page.ICON, media_type="image/svg+xml"),
        ),
        "/about": Get(
            "The cards of the models, as a page.",
            lambda service: _page(*page.render_about(service.cards)),
        ),
        "/health": Get("Whether the server is ready.", _health),
        "/metrics": Get("Metrics for Prometheus.", _metrics),
    }
)
APIS: tuple[Api, ...] = (COMMON, libretranslate.API, translations.API)


class _Bodies:
    """Middleware that limits bodies, and reads them to the end.

    Closing a connection while the client still sends resets it, and the client
    may not get the answer.
    """

    def __init__(self, app, limits, seconds):
        self._app, self._limits, self._seconds = app, limits, seconds

    async def __call__(self, scope, receive, send):
        path, max_bytes = scope["path"], self._limits.max_body_bytes
        posts = (api.posts[path] for api in APIS if path in api.posts)
        if any(post.kinds == FILE_FORM for post in posts):
            max_bytes = self._limits.max_file_bytes
        body = Body(receive, max_bytes)

        async def answer(message):
            if message["type"] == "http.response.start":
                await body.discard(DISCARD_BYTES, self._seconds)
            await send(message)

        await self._app(scope, body.receive, answer)


class _Post:
    """The ASGI endpoint of a POST path, with its API keys and deadline.

    `path` is one of the `api`'s posts.
    """

    def __init__(self, service, api, path):
        self._service, self._api, self._path = service, api, path

    async def __call__(self, scope, receive, send):
        started = time.monotonic()
        seconds = self._service.options.request_seconds
        try:
            async with asyncio.timeout(seconds):
                response = await self._respond(Request(scope, receive))
        except TimeoutError:
            message = f"the request took longer than {seconds:g} seconds"
            response = _refuse(HTTPException(504, message), self._api)
        self._service.metrics.observe_request(
            self._path, response.status_code, time.monotonic() - started
        )
        await response(scope, receive, send)

    async def _respond(self, request):
        """Makes the response, or the error response if the request fails."""
        try:
            return await self._answer(request)
        except HTTPException as error:
            return _refuse(error, self._api)
        except ClientDisconnect:
            return Response(status_code=HUNG_UP)
        except Exception as error:
            log_failure(error)
            failure = HTTPException(500, "the server has failed")
            return _refuse(failure, self._api)
        finally:
            await request.close()  # also closes the file of a form

    async def _answer(self, request):
        """Makes the API's response. Raises ClientDisconnect on a hang-up."""
        self._service.check_ready()
        post = self._api.posts[self._path]
        fields = await read_fields(request, post)
        check_key(self._service.keys, fields.get("api_key"), request)
        work = asyncio.ensure_future(post.answer(self._service, fields))
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
            # The work must have left the queue before this request ends.
            await asyncio.gather(work, hang_up, return_exceptions=True)


async def _hang_up(receive):
    """Returns when the client closes the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _response(answer):
    return answer if isinstance(answer, Response) else JSONResponse(answer)


def _refuse(error, api):
    """Makes an API's response from an HTTPException."""
    message = error.detail
    if len(message) > LONGEST_ERROR:
        message = f"{message[:LONGEST_ERROR]} ..."
    content = api.error(error.status_code, message)
    return JSONResponse(content, error.status_code, error.headers)
