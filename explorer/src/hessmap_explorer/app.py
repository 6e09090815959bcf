"""The explorer as an ASGI app: one page for every screen, the routes behind it, and files that never change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

from fastapi import APIRouter, FastAPI, Response
from starlette.responses import HTMLResponse

from hessmap import __version__
from hessmap.errors import MissingExtra, unknown_name
from hessmap.views.page import page, page_style
from hessmap_explorer.access import Access
from hessmap_explorer.answers import Answer, answer_with_sentences
from hessmap_explorer.functions import functions_router
from hessmap_explorer.jobs import Jobs
from hessmap_explorer.maps import maps_router
from hessmap_explorer.predict import router as predict_router
from hessmap_explorer.settings import NO_RESEARCH, Explorer
from hessmap_explorer.tracks import tracks_router
from hessmap_explorer.work import work_router

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
    async def start() -> HTMLResponse:
        return HTMLResponse(_shell())

    for screen in _SCREENS:
        app.get(f"/{screen}")(start)
        app.get(f"/{screen}/{{rest:path}}")(start)
    return app


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
