"""The explorer as an ASGI app: one page for every screen, the routes behind it, and files that never change.

Every request needs the right Host, the right Origin and the token: a page of another site cannot read from here (no
CORS header is ever sent), cannot write (Origin), cannot reach this server under a name of its own (Host) and cannot
frame it.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from fastapi import APIRouter, FastAPI, HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hessmap import __version__
from hessmap.errors import HessmapError, MissingExtra, sentence, unknown_name
from hessmap.records import Store, map_summaries
from hessmap.views.page import page, page_style
from hessmap_explorer.answers import Answer, answer_with_sentences
from hessmap_explorer.fields import is_count
from hessmap_explorer.functions import functions_router
from hessmap_explorer.jobs import Jobs
from hessmap_explorer.maps import maps_router
from hessmap_explorer.predict import router as predict_router
from hessmap_explorer.settings import NO_RESEARCH, Explorer
from hessmap_explorer.tracks import tracks_router
from hessmap_explorer.work import work_router

MOST_BYTES = 64_000  # of a request: no screen sends more
_SAFE = ("GET", "HEAD")
# Plotly sets styles on elements, which needs 'unsafe-inline' for styles; scripts come from files alone.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class Access:
    """ASGI middleware that lets through what the user's own browser sends, and refuses the rest with a sentence."""

    def __init__(self, app: ASGIApp, explorer: Explorer) -> None:
        self._app, self._explorer = app, explorer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # no websocket is served
        headers = Headers(scope=scope)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    added.setdefault(name, value)
            await send(message)

        answer = self._refusal(scope, headers)
        await (answer or self._app)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """What is answered in the place of the app; None where the request may go on."""
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0] not in self._explorer.hosts:
            must = f"the explorer answers to {' and '.join(self._explorer.hosts)}"
            return _refused(421, must, "the Host is another", "Open the link that hessmap serve printed")
        if not self._is_own_page(scope["method"], headers):
            return _refused(403, "requests must come from the explorer's own page", "this came from another")
        length = headers.get("content-length", "0")
        if not is_count(length) or int(length) > MOST_BYTES or "transfer-encoding" in headers:
            return _refused(413, f"a request must be at most {MOST_BYTES:,} bytes and state its length", "it is not")
        given = self._token_in_query(scope)
        if given is not None and self._is_token(given[0]):
            return self._signed_in(scope, given[1])
        if self._is_token(cookie_parser(headers.get("cookie", "")).get(self._explorer.cookie, "")):
            return None
        remedy = "Open the link that hessmap serve printed, with its token"
        return _refused(401, "the explorer needs its token", "this request has none or a wrong one", remedy)

    def _is_own_page(self, method: str, headers: Headers) -> bool:
        """Origin is sent with every request that writes; Sec-Fetch-Site tells the rest apart in today's browsers."""
        own = {f"http://{host}" for host in self._explorer.hosts}
        origins = headers.getlist("origin")
        if len(origins) > 1 or any(origin not in own for origin in origins):
            return False
        if method in _SAFE:  # a link may lead here from anywhere, a picture or script of another site may not
            mode = headers.get("sec-fetch-mode", "navigate")
            return headers.get("sec-fetch-site", "none") in ("none", "same-origin") or mode == "navigate"
        return bool(origins)

    def _token_in_query(self, scope: Scope) -> tuple[str, str] | None:
        """The token of the link and the rest of its query; None where there is no token."""
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        found = [value for name, value in pairs if name == "token"]
        rest = urlencode([(name, value) for name, value in pairs if name != "token"])
        return (found[0], rest) if found and scope["method"] in _SAFE else None

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self._explorer.token.encode())

    def _signed_in(self, scope: Scope, query: str) -> Response:
        """To the same address without the token, which a cookie now holds that no script and no other site reads."""
        path = "/" + scope["path"].lstrip("/\\")  # never to another host
        answer = RedirectResponse(path + (f"?{query}" if query else ""), status_code=303)
        answer.set_cookie(self._explorer.cookie, self._explorer.token, httponly=True, samesite="strict")
        return answer


def _refused(status: int, must: str, got: str, remedy: str = "") -> Response:
    return PlainTextResponse(sentence(must, got, remedy), status_code=status)


_SCREENS = ("predict", "maps", "training", "compare", "studies", "papers", "function", "jobs")
_TYPES = {".js": "text/javascript", ".css": "text/css", ".txt": "text/plain", ".svg": "image/svg+xml"}


def explorer_app(explorer: Explorer) -> FastAPI:
    """The app of an explorer; its jobs end with it."""
    jobs = Jobs()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        jobs.close()

    nowhere: dict[str, Any] = {"docs_url": None, "redoc_url": None, "openapi_url": None, "redirect_slashes": False}
    app = FastAPI(title="hessmap explorer", lifespan=lifespan, **nowhere)
    app.add_middleware(Access, explorer=explorer)
    answer_with_sentences(app)
    app.include_router(predict_router)
    for router in (
        maps_router(explorer),
        tracks_router(explorer),
        _studies_router(explorer),
        functions_router(explorer),
        work_router(explorer, jobs),
    ):
        app.include_router(router)

    @app.get("/api/about")
    async def about() -> Answer:
        return Answer(
            {
                "version": __version__,
                "model": explorer.model,
                "data": explorer.data,
                "loss": explorer.loss,
                "has_initial": explorer.initial is not None,
                "store": str(explorer.store),
            }
        )

    @app.get("/static/{path:path}")
    async def static(path: str) -> Response:
        content, kind = static_file(path)
        return Response(content, media_type=kind)

    @app.get("/")
    def start() -> Response:
        """The map of the served model, the form that makes one, or the predictions if no model was served."""
        return RedirectResponse(_first_screen(explorer), status_code=303)

    async def shell() -> HTMLResponse:
        return HTMLResponse(_shell())

    for screen in _SCREENS:
        app.get(f"/{screen}")(shell)
        app.get(f"/{screen}/{{rest:path}}")(shell)

    @app.get("/{path:path}")
    async def elsewhere(path: str) -> Response:
        """A page that lists the screens; an address of data gets a sentence."""
        if path.split("/")[0] in ("api", "static"):
            raise HTTPException(404)
        return HTMLResponse(_shell(), status_code=404)

    return app


def _first_screen(explorer: Explorer) -> str:
    if explorer.model is None:
        return "/predict"
    own: list[str] = []
    if explorer.store.exists():
        with suppress(HessmapError), Store(explorer.store) as store:  # /maps shows what is wrong with it
            found = [one for one in map_summaries(store, refused=[]) if one.options is not None]
            own = [one.name for one in found if one.options and one.options.model == explorer.model]
    return f"/maps/{quote(own[-1], safe='')}" if own else "/maps"


def _studies_router(explorer: Explorer) -> APIRouter:
    """The routes of studies and papers; without hessmap-research each of them names the package."""
    if find_spec("hessmap_research") is not None:
        from hessmap_explorer.studies import studies_router

        return studies_router(explorer)
    router = APIRouter(prefix="/api")

    @router.get("/papers")
    @router.get("/studies")
    @router.get("/studies/{rest:path}")
    def missing(rest: str = "") -> None:
        raise MissingExtra(NO_RESEARCH)

    return router


@cache
def _shell() -> str:
    return page("explorer.html.j2", "hessmap_explorer", title="hessmap explorer")


@cache
def static_file(path: str) -> tuple[bytes, str]:
    """A file of the page by its name: only those that were there when the package was built have one."""
    known = _static_files()
    if path == "page.css":
        return page_style().encode(), "text/css"
    if path not in known:
        raise unknown_name("a file of the explorer", path[:100], ["the ones that its pages name"])
    return known[path].read_bytes(), _TYPES[known[path].suffix]


@cache
def _static_files() -> dict[str, Any]:
    """Every file below ``static/`` by its path there; no other path is ever opened."""
    from pathlib import Path

    root = Path(str(files("hessmap_explorer"))) / "static"
    found = [path for path in root.rglob("*") if path.suffix in _TYPES]
    return {path.relative_to(root).as_posix(): path for path in found}
