"""The web pages, as `web/` builds them: one document for all addresses, and its files.

The document says where it lies relative to the address it was asked for, so the pages work under any prefix of a proxy.
"""

from __future__ import annotations

import re
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import Response

from crannog.errors import NotFound
from crannog.server.requests import call_of

router = APIRouter(include_in_schema=False)
# The first part of each page's address; the pages themselves know the rest (web/README.md).
PAGES = (
    "audit",
    "builds",
    "conversations",
    "erase",
    "jobs",
    "lineage",
    "load",
    "partitions",
    "receipts",
    "services",
    "sessions",
    "sql",
    "tables",
    "traces",
    "upkeep",
)
_PAGE = re.compile(rf"/(?:assets/.*|favicon\.svg|(?:{'|'.join(PAGES)})(?:/.*)?)?")
_BUILT = Path(str(files("crannog.server") / "pages" / "built"))
_FILE = re.compile(r"[A-Za-z0-9_\-]+(?:\.[A-Za-z0-9_\-]+)+")
_ENCODINGS = (("br", ".br"), ("gzip", ".gz"))
_MEDIA = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".woff2": "font/woff2"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'self'; form-action 'self';"
    " object-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_NOT_BUILT = """<!doctype html>
<html lang="en">
<title>Crannog</title>
<h1>The pages are not built</h1>
<p>This server runs, but its web pages were not built. In a checkout, run <code>make pages</code> (it needs the network
once) and load this page again. The <a href="api/docs">HTTP API</a> works without them.</p>
</html>
"""


def is_page(path: str) -> bool:
    """Return whether everybody may fetch an address: the pages hold no data, they ask the API for it."""
    return _PAGE.fullmatch(path) is not None


def base_of(path: str) -> str:
    """Return the root of the server, relative to a path."""
    return "../" * (path.count("/") - 1) or "./"


@router.get("/")
async def home(request: Request) -> Response:
    """The document of all pages."""
    return await _document(request)


@router.get("/assets/{name}")
async def asset(request: Request) -> Response:
    """A file of the pages; its name changes with its content."""
    return await _file(request, "assets/", request.path_params["name"], "public, max-age=31536000, immutable")


@router.get("/favicon.svg")
async def favicon(request: Request) -> Response:
    """The icon."""
    return await _file(request, "", "favicon.svg", "public, max-age=86400")


async def page(request: Request) -> Response:
    """The document, at the address of a page."""
    return await _document(request)


for _name in PAGES:
    router.add_api_route(f"/{_name}", page, methods=["GET"])
    router.add_api_route(f"/{_name}/{{rest:path}}", page, methods=["GET"])


async def _document(request: Request) -> Response:
    def text() -> str | None:
        try:
            return (_BUILT / "index.html").read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    found = await call_of(request).service.threads.run("read", text)
    headers = {**_HEADERS, "Cache-Control": "no-cache"}
    if found is None:
        return Response(_NOT_BUILT, 503, headers, "text/html; charset=utf-8")
    base = base_of(request.scope["path"])
    return Response(
        found.replace('<base href="./"', f'<base href="{base}"', 1), 200, headers, "text/html; charset=utf-8"
    )


async def _file(request: Request, folder: str, name: str, cached: str) -> Response:
    accepted = call_of(request).header(b"accept-encoding")

    def content() -> tuple[bytes, str | None] | None:
        if not _FILE.fullmatch(name) or Path(name).suffix not in _MEDIA:
            return None
        for encoding, suffix in _ENCODINGS:
            if encoding in accepted:
                with suppress(FileNotFoundError):
                    return (_BUILT / folder / (name + suffix)).read_bytes(), encoding
        with suppress(FileNotFoundError):
            return (_BUILT / folder / name).read_bytes(), None
        return None

    found = await call_of(request).service.threads.run("read", content)
    if found is None:
        raise NotFound(f"there is no file {name[:100]!r} of the pages; load the page again, it may have been updated")
    body, encoding = found
    headers = {**_HEADERS, "Cache-Control": cached, "Vary": "accept-encoding"}
    if encoding is not None:
        headers["Content-Encoding"] = encoding
    return Response(body, 200, headers, _MEDIA[Path(name).suffix])
