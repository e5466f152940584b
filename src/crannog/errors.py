"""One tree of errors, sorted by what the caller should do about them.

Each branch fixes the HTTP status, the exit code of the command line and whether an OTLP client
may retry, so the doors translate an error without knowing where it came from.
"""

from __future__ import annotations


class CrannogError(Exception):
    """Anything Crannog raises on purpose. `hint`, what to do about it, is the end of the message."""

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
    """The request is wrong; sending it again changes nothing."""

    code = "bad_request"
    http_status = 400
    exit_code = 2


class NotFound(CallerError):
    """What was asked for does not exist."""

    code = "not_found"
    http_status = 404


class SchemaMismatch(CallerError):
    """The data does not fit the table."""

    code = "schema_mismatch"
    http_status = 412


class BadRows(CallerError):
    """A row of the batch cannot be kept; nothing of the batch was."""

    code = "bad_rows"
    http_status = 422


class Refused(CallerError):
    """The request is understood and not allowed."""

    code = "refused"
    http_status = 400


class Unauthorized(CallerError):
    """The server does not know who asks; send a token that it knows."""

    code = "unauthorized"
    http_status = 401


class Forbidden(CallerError):
    """The server knows who asks, and that they may not."""

    code = "forbidden"
    http_status = 403


class MethodNotAllowed(CallerError):
    """The address is right and the method is not."""

    code = "method_not_allowed"
    http_status = 405


class TooLarge(CallerError):
    """The request is larger than the server takes; send it in parts."""

    code = "too_large"
    http_status = 413


class UnsupportedMedia(CallerError):
    """The request is in a form or an encoding that the server does not read."""

    code = "unsupported_media"
    http_status = 415


class Conflict(CrannogError):
    """Another writer won, or the thing exists in another form; start again from the head."""

    code = "conflict"
    http_status = 409
    exit_code = 3


class Overloaded(CrannogError):
    """A limit is reached; nothing was kept; try again later."""

    code = "overloaded"
    http_status = 429
    exit_code = 4
    retryable = True


class Unavailable(CrannogError):
    """Spark or the storage failed; try again later."""

    code = "unavailable"
    http_status = 503
    exit_code = 5
    retryable = True


class NotInstalled(Unavailable):
    """A package that this needs is not installed; the message has the command that installs it."""

    code = "not_installed"
    retryable = False


class SparkLost(Unavailable):
    """Spark's Java process ended under the work; it starts anew at the next use."""

    code = "spark_lost"


class SnapshotGone(Unavailable):
    """The files a read stood on were erased; read again to see the table as it is now."""

    code = "snapshot_gone"


class Corrupted(Unavailable):
    """A file of the table cannot be read; the message names it."""

    code = "corrupted"
    retryable = False


class VerificationFailed(Unavailable):
    """What Spark wrote is not what was expected; it was not committed and nobody saw it."""

    code = "verification_failed"


class TimedOut(CrannogError):
    """The work took longer than it was given."""

    code = "timed_out"
    http_status = 408
    exit_code = 4


class Cancelled(CrannogError):
    """The caller took the work back before it committed."""

    code = "cancelled"
    http_status = 499
    exit_code = 1


def error_of(code: str, message: str, retry_after_s: float | None = None) -> CrannogError:
    """Return the error that another process told by its code; Unavailable if this version does not know it."""
    kinds: list[type[CrannogError]] = [CrannogError]
    for kind in kinds:
        kinds.extend(kind.__subclasses__())
    # The first of the tree: branches that have no code of their own share their parent's.
    found = next((kind for kind in kinds if kind.code == code), Unavailable)
    return found(message, retry_after_s=retry_after_s)
