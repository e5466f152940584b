"""All errors, grouped by what the caller should do about them.

Each class has the HTTP status, the exit code of the command line and whether an OTLP client
may retry, so every interface can report an error without knowing where it was raised.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class CrannogError(Exception):
    """Base class of all errors that Crannog raises. `hint`, which says what to do, is the end of the message."""

    code = "error"
    http_status = 500
    exit_code = 1
    retryable = False

    def __init__(self, message: str, *, hint: str = "", retry_after_s: float | None = None) -> None:
        whole = f"{message}; {hint}" if hint else message
        super().__init__(whole)
        self.message = whole
        self.hint = hint
        self.retry_after_s = retry_after_s

    @property
    def finding(self) -> str:
        """The message without the hint."""
        return self.message.removesuffix(f"; {self.hint}") if self.hint else self.message


class CallerError(CrannogError):
    """The request is invalid; retrying it does not help."""

    code = "bad_request"
    http_status = 400
    exit_code = 2


class NotFound(CallerError):
    """The requested object does not exist."""

    code = "not_found"
    http_status = 404


class SchemaMismatch(CallerError):
    """The data does not fit the table."""

    code = "schema_mismatch"
    http_status = 412


class BadRows(CallerError):
    """A row of the batch is invalid; nothing of the batch was stored."""

    code = "bad_rows"
    http_status = 422


class Refused(CallerError):
    """The request is valid but not allowed."""

    code = "refused"
    http_status = 400


class Unauthorized(CallerError):
    """The request has no valid token; send one."""

    code = "unauthorized"
    http_status = 401


class Forbidden(CallerError):
    """The token does not permit this request."""

    code = "forbidden"
    http_status = 403


class MethodNotAllowed(CallerError):
    """The address does not support this HTTP method."""

    code = "method_not_allowed"
    http_status = 405


class TooLarge(CallerError):
    """The request is larger than the server accepts; send it in parts."""

    code = "too_large"
    http_status = 413


class UnsupportedMedia(CallerError):
    """The server does not support the format or encoding of the request."""

    code = "unsupported_media"
    http_status = 415


class Conflict(CrannogError):
    """Another writer committed first, or the object exists with another definition; read the current state and try again."""

    code = "conflict"
    http_status = 409
    exit_code = 3


class Overloaded(CrannogError):
    """A limit was reached and nothing was stored; try again later."""

    code = "overloaded"
    http_status = 429
    exit_code = 4
    retryable = True


class Unavailable(CrannogError):
    """Spark, the storage or the server is not available; try again later."""

    code = "unavailable"
    http_status = 503
    exit_code = 5
    retryable = True


class NotInstalled(Unavailable):
    """A required package is not installed; the message has the command that installs it."""

    code = "not_installed"
    retryable = False


class SparkLost(Unavailable):
    """The Java process of Spark ended during the work; it is restarted at the next use."""

    code = "spark_lost"


class SnapshotGone(Unavailable):
    """The files of a snapshot were erased during a read; read again to see the current table."""

    code = "snapshot_gone"


class Corrupted(Unavailable):
    """A file of the table cannot be read; the message names it."""

    code = "corrupted"
    retryable = False


class VerificationFailed(Unavailable):
    """The data that Spark wrote failed verification; it was not committed."""

    code = "verification_failed"


class TimedOut(CrannogError):
    """The request exceeded its time limit."""

    code = "timed_out"
    http_status = 408
    exit_code = 4


class Cancelled(CrannogError):
    """The caller cancelled the work before it was committed."""

    code = "cancelled"
    http_status = 499
    exit_code = 1


def error_of(code: str, message: str, retry_after_s: float | None = None) -> CrannogError:
    """Return the error with a code that another process sent; Unavailable if this version does not know the code."""
    kinds: list[type[CrannogError]] = [CrannogError]
    for kind in kinds:
        kinds.extend(kind.__subclasses__())
    # Breadth first, since classes without a code of their own inherit that of their parent.
    found = next((kind for kind in kinds if kind.code == code), Unavailable)
    return found(message, retry_after_s=retry_after_s)


# By their own names and not as extras, which would bring the whole engine to a thin client.
_ALONE = {
    "psycopg": "'psycopg[binary]'",
    "psycopg_binary": "'psycopg[binary]'",
    "pandas": "'pandas<3'",
    "polars": "polars",
    "opentelemetry.sdk": "opentelemetry-sdk opentelemetry-exporter-otlp-proto-http",
    "opentelemetry.exporter": "opentelemetry-sdk opentelemetry-exporter-otlp-proto-http",
}


@contextmanager
def needed_for(purpose: str) -> Iterator[None]:
    """Raise NotInstalled, with the command to run, if an import in this block finds its package missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise not_installed(error, purpose) from error


def not_installed(error: ModuleNotFoundError, purpose: str) -> NotInstalled:
    """Return the error for a package that `purpose` needs; raises `error` itself if a module of Crannog is missing."""
    name = error.name or ""
    package = name.partition(".")[0]
    if package in ("", "crannog"):
        raise error
    # pip adds the dependencies that an installed package lacks, so the plain command completes a thin client.
    wanted = next((alone for prefix, alone in _ALONE.items() if f"{name}.".startswith(f"{prefix}.")), "crannog")
    return NotInstalled(f"{purpose} needs the package {name}, which is not installed: pip install {wanted}")
