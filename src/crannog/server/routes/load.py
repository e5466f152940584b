"""A file as a body, loaded into a table by the rules of every load: types from all values, drift, bad rows, each file once."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any, cast

from fastapi import APIRouter, Request
from starlette.datastructures import QueryParams
from starlette.responses import Response

from crannog.api.lake import LoadArguments
from crannog.api.reports import Cancellation, LoadReport, Progress
from crannog.errors import CallerError, CrannogError
from crannog.names import TableName
from crannog.server.openapi import TABLE_IN_PATH, TEXT, gives, parameter, takes
from crannog.server.requests import call_of
from crannog.server.streaming import long_work
from crannog.storage.scratch_folders import scratch_folder

router = APIRouter(prefix="/api/v1", tags=["rows"])
_FLAGS = ("create", "flatten", "evolve", "ignore_extra", "again", "dry_run")
_TEXTS = ("types", "mode", "format", "delimiter")
_LISTS = ("key", "partition_by")
_ABOUT = {
    "file": "The name of the file: for messages, and its ending tells the format.",
    "create": "Create the table if it does not exist; needs the right `admin`.",
    "key": "Columns of the key of a new table.",
    "partition_by": "Columns that a new table is partitioned by.",
    "types": "Types instead of those found: column=type,column=type.",
    "mode": "append or upsert",
    "format": "csv, json, ndjson or parquet; found out if not given.",
    "delimiter": "Of CSV; the comma if not given.",
    "flatten": "Make columns of nested objects.",
    "evolve": "Add columns and widen types that the file needs; needs the right `admin`.",
    "ignore_extra": "Leave out columns that the table does not have.",
    "max_bad": "The number of bad rows that may be left out; 0 if not given.",
    "again": "Load a file once more that was loaded before.",
    "dry_run": "Only tell what would happen.",
}


def _described(name: str) -> dict[str, Any]:
    if name in _FLAGS:
        return parameter(name, "query", {"type": "boolean", "default": False}, _ABOUT[name])
    if name in _LISTS:
        return parameter(name, "query", {"type": "array", "items": TEXT}, _ABOUT[name])
    return parameter(name, "query", {"type": "integer"} if name == "max_bad" else TEXT, _ABOUT[name])


@router.post(
    "/tables/{name}/load",
    responses=gives(LoadReport, progress=True),
    openapi_extra={
        "parameters": [TABLE_IN_PATH, *map(_described, _ABOUT)],
        **takes({"application/octet-stream": {"type": "string", "format": "binary"}}),
    },
)
async def load(request: Request) -> Response:
    """Load a file: CSV, JSON, NDJSON or Parquet, plain or packed with gzip or zstd. All of it is looked through first."""
    call, query = call_of(request), request.query_params
    options = _options(query)
    name = TableName.parse(request.path_params["name"])
    call.need("admin" if options.get("create") or options.get("evolve") else "write", name)
    shown = PurePosixPath(query.get("file", "").replace("\\", "/")).name[:200] or "the file"
    data = await call.service.bodies.read(request)
    if not data:
        raise CallerError("the request has no body; send the file as the body")

    def work(progress: Progress, cancellation: Cancellation) -> dict[str, Any]:
        with scratch_folder("load") as folder:
            # The name is the caller's, and names of files to load may be patterns: only the endings are kept.
            path = Path(
                folder, "file" + "".join(ending for ending in PurePosixPath(shown).suffixes[-2:] if _plain(ending))
            )
            path.write_bytes(data)
            arguments = cast(LoadArguments, {**options, "progress": progress, "cancellation": cancellation})
            try:
                report = call.service.lake.load(str(path), str(name), **arguments)
            except CrannogError as error:
                error.message = error.message.replace(str(path), shown)
                error.args = (error.message,)
                raise
            call.rows = report.rows
            return _named(report.as_dict(), str(path), shown)

    return await long_work(request, work)


def _plain(ending: str) -> bool:
    return ending[1:].isalnum() and ending.isascii()


def _named(report: dict[str, Any], path: str, shown: str) -> dict[str, Any]:
    """Replace the path on this machine by the name that the caller gave."""
    for entry in (*report["files"], *report["first_bad"]):
        if entry["file"] == path:
            entry["file"] = shown
    return report


def _options(query: QueryParams) -> dict[str, Any]:
    """Read the options of a load. Raises CallerError for unknown names; the load checks the rest."""
    unknown = [name for name in query if name not in _ABOUT]
    if unknown:
        raise CallerError(f"a load has no option {', '.join(unknown)[:80]}; it has {', '.join(_ABOUT)}")
    found: dict[str, Any] = {name: query[name] for name in _TEXTS if query.get(name)}
    found |= {name: query.getlist(name) for name in _LISTS if query.getlist(name)}
    for name in _FLAGS:
        text = query.get(name, "false").lower()
        if text not in ("true", "false", "1", "0"):
            raise CallerError(f"{name} is true or false, got {text[:40]!r}")
        found[name] = text in ("true", "1")
    if most := query.get("max_bad"):
        if not most.isdecimal() or len(most) > 15:
            raise CallerError(f"max_bad is a whole number, 0 or more, got {most[:40]!r}")
        found["max_bad"] = int(most)
    return found
