"""How the server is: health, readiness, figures, and the page about the API."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Request
from starlette.responses import Response

from crannog.errors import Forbidden
from crannog.server.degraded import degraded
from crannog.server.metrics import spark_state
from crannog.server.openapi import OBJECT, gives
from crannog.server.requests import call_of
from crannog.server.responses import answer
from crannog.version import VERSION

router = APIRouter(tags=["state"])
_RETRY = {"Retry-After": "1"}


@router.get("/healthz", responses=gives(OBJECT))
async def healthz() -> Response:
    """The process lives."""
    return answer({"status": "ok"})


@router.get("/readyz", responses=gives(OBJECT))
async def readyz(request: Request) -> Response:
    """Requests are taken: the storage answers and the server is not stopping. Spark may still be starting.

    `degraded` lists what does not work as it should, since when, and what to do.
    """
    service = call_of(request).service
    state = {"status": "ready", "version": VERSION, "spark": spark_state(service), "degraded": degraded(service)}
    if service.draining:
        return answer({**state, "status": "stopping"}, 503, _RETRY)
    failure = await service.storage_probe.failure()
    if failure is not None:
        return answer({**state, "status": "storage", "message": failure}, 503, _RETRY)
    return answer(state)


@router.get("/metrics", responses={200: {"description": "Figures for Prometheus.", "content": {"text/plain": {}}}})
async def metrics(request: Request) -> Response:
    """The figures of this server, as Prometheus reads them. They name tables, so a token must be one that reads everywhere."""
    call = call_of(request)
    if not call.caller.may_everywhere("read"):
        raise Forbidden(f"{call.caller.name} may not read the figures: they name all tables, and take the scope read")
    service = call.service
    page = await service.threads.run("read", service.metrics.page)
    return Response(page, media_type="text/plain; version=0.0.4; charset=utf-8")


@cache
def _page(name: str) -> bytes:
    return (files("crannog.server") / "pages" / name).read_bytes()


@router.get("/api/docs", include_in_schema=False)
async def docs() -> Response:
    """The routes, to read and to try."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
    return Response(
        _page("docs.html"), media_type="text/html; charset=utf-8", headers={"Content-Security-Policy": policy}
    )
