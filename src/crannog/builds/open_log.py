"""Opening a log by its URI."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from crannog.builds.log import EventLog
from crannog.errors import CallerError, needed_for
from crannog.names import TableName

FORMS = (
    "sqlite:///relative/file or sqlite:////absolute/file, sqlite::memory:, delta:///absolute/folder,"
    " delta+s3://bucket/folder (also delta+gs, delta+az), postgresql://user@host/database, stdout:, tee:URI,URI…,"
    " http(s)://server"
)

EVENTS = TableName.parse("crannog.builds.build_events")
"""The table of a log in a warehouse."""

Opener = Callable[[str, dict[str, Any]], EventLog]
_OPENERS: dict[str, Opener] = {}


def register_scheme(scheme: str, opener: Opener) -> None:
    """Add a scheme to `open_log`: `opener` gets the URI and the options and returns the log."""
    _OPENERS[scheme] = opener


def open_log(uri: str, *, check_states: bool = False, best_effort: bool = False, **options: Any) -> EventLog:
    """Open the build log at a URI; create it if it does not exist.

    `check_states` is the default of the argument of that name of `append_events`. `best_effort` returns a log whose
    appends never raise and never wait for the store. Raises CallerError if the URI is invalid.
    """
    if not isinstance(uri, str):
        raise CallerError(f"the URI of a build log is text like {FORMS}; got {type(uri).__name__}")
    if best_effort:
        from crannog.builds.stores.forwarding_log import BestEffortLog

        _checked_scheme(uri)
        return BestEffortLog(uri, lambda: open_log(uri, check_states=check_states, **options))
    return _OPENERS[_checked_scheme(uri)](uri, {"check_states": check_states, **options})


def _checked_scheme(uri: str) -> str:
    scheme, colon, _ = uri.partition(":")
    if not colon or not scheme:
        raise CallerError(f"{uri!r} is not the URI of a build log: use {FORMS}")
    if scheme in _OPENERS:
        return scheme
    hint = " (did you mean delta+s3://?)" if scheme in ("s3", "gs", "az") else ""
    raise CallerError(f"{scheme}: is not a kind of build log{hint}: use {FORMS}")


def warehouse_uri(location: str) -> str:
    """Return the URI of the log in the warehouse at `location`."""
    where = location.removeprefix("file://")
    return f"delta+{where}" if "://" in where else f"delta://{quote(str(Path(where).expanduser().absolute()))}"


def other_than_warehouse(uri: str, location: str) -> str:
    """Return `uri`, or nothing if it is the URI of the log in the warehouse at `location`."""
    return "" if uri == warehouse_uri(location) else uri


def _sqlite(uri: str, options: dict[str, Any]) -> EventLog:
    from crannog.builds.stores.sqlite_log import SqliteLog

    check_states = _check_states_of(options, uri)
    rest = uri.removeprefix("sqlite:")
    if rest in (":memory:", "//:memory:", "///:memory:"):
        return SqliteLog("sqlite::memory:", None, check_states=check_states)
    if not rest.startswith("///") or len(rest) < 4:
        raise CallerError(f"{uri!r}: write sqlite:///relative/file, sqlite:////absolute/file or sqlite::memory:")
    path = Path(unquote(rest[3:])).absolute()
    if path.is_dir():
        raise CallerError(f"{uri!r}: {path} is a folder; a SQLite log is a file")
    if not path.parent.is_dir():
        raise CallerError(f"{uri!r}: there is no folder {path.parent}; create it first")
    return SqliteLog(uri, path, check_states=check_states)


def _delta(uri: str, options: dict[str, Any]) -> EventLog:
    parts = urlsplit(uri)
    if parts.scheme == "delta":
        if parts.netloc or not parts.path.startswith("/"):
            raise CallerError(f"{uri!r} is not absolute: write delta:///absolute/folder")
        location = unquote(parts.path)
        if location.strip("/") == "":
            raise CallerError(f"{uri!r} names no folder: write delta:///absolute/folder")
    else:
        if not parts.netloc:
            raise CallerError(f"{uri!r} names no bucket: write {parts.scheme}://bucket/folder")
        store = {"gcs": "gs", "azure": "az"}.get(
            parts.scheme.removeprefix("delta+"), parts.scheme.removeprefix("delta+")
        )
        location = f"{store}://{parts.netloc}{parts.path}"
    with needed_for(f"the build log {uri}"):
        from crannog.builds.stores.delta_log import open_delta_log

        return open_delta_log(uri, location, parts.query, options)


def _postgresql(uri: str, options: dict[str, Any]) -> EventLog:
    with needed_for(f"the build log {without_password(uri)}"):
        try:
            from crannog.builds.stores.postgres_log import PostgresLog
        except ModuleNotFoundError:
            raise
        except ImportError as error:
            # The driver is there and finds no libpq, which its binary package brings.
            raise ModuleNotFoundError(str(error), name="psycopg_binary") from error
    return PostgresLog(uri, check_states=_check_states_of(options, uri))


def _http(uri: str, options: dict[str, Any]) -> EventLog:
    # Imported by name: the client is a layer above the logs.
    with needed_for(f"the build log {uri}"):
        client = import_module("crannog.remote.builds")
    log: EventLog = client.HttpLog(uri, **options)
    return log


def _stdout(uri: str, options: dict[str, Any]) -> EventLog:
    from crannog.builds.stores.forwarding_log import StdoutLog

    _check_states_of(options, uri)
    if uri != "stdout:":
        raise CallerError(f"{uri!r}: write stdout: without anything after it")
    return StdoutLog()


def _tee(uri: str, options: dict[str, Any]) -> EventLog:
    from crannog.builds.stores.forwarding_log import TeeLog

    parts = [unquote(part) for part in uri.removeprefix("tee:").split(",") if part]
    if len(parts) < 2:
        raise CallerError(f"{uri!r}: write tee:URI,URI with two URIs or more (a comma inside one as %2C)")
    logs: list[EventLog] = []
    try:
        for part in parts:
            logs.append(open_log(part, **options))
    except BaseException:
        for log in logs:
            log.close()
        raise
    return TeeLog(logs)


def _check_states_of(options: dict[str, Any], uri: str) -> bool:
    """Return the option `check_states`. Raises CallerError for an option that this kind of log does not have."""
    others = sorted(options.keys() - {"check_states"})
    if others:
        raise CallerError(f"{without_password(uri)!r}: there is no option {others[0]} for this kind of log")
    return bool(options["check_states"])


def without_password(uri: str) -> str:
    """Return a URI without its password."""
    head, at, tail = uri.rpartition("@")
    if not at:
        return uri
    start, slashes, user = head.partition("://")
    return f"{start}{slashes}{user.partition(':')[0]}@{tail}"


for _scheme, _opener in (
    ("sqlite", _sqlite),
    ("delta", _delta),
    *[(f"delta+{_store}", _delta) for _store in ("s3", "gs", "gcs", "az", "azure")],
    ("postgresql", _postgresql),
    ("postgres", _postgresql),
    ("http", _http),
    ("https", _http),
    ("stdout", _stdout),
    ("tee", _tee),
):
    register_scheme(_scheme, _opener)
