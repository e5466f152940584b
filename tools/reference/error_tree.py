"""The page about errors: each one's code, status and exit code, whether to try again, and what to do."""

from __future__ import annotations

from collections.abc import Iterator

from crannog import errors
from reference.markdown import code, document, table

ADVICE: dict[str, str] = {
    "CrannogError": "Never raised itself on purpose; a server that failed in a way nobody thought of answers with it. Look up the request id in the server's log.",
    "CallerError": "Read the message: it says what was asked, what stands there and what to change.",
    "NotFound": "Check the name. `crannog tables` lists the tables, `crannog history` the versions that can still be read.",
    "SchemaMismatch": "Compare your columns with `crannog describe NAME`. Change the data, or `evolve` the table if the new columns are nullable or wider.",
    "BadRows": "The message names row, column and value. Correct that row and send the whole batch again: nothing of it was kept.",
    "Refused": "The request is understood and will never be done in this form; the message says why, and often what to do instead.",
    "Unauthorized": "Give a token: `crannog.connect(url, token=…)`, `CRANNOG_TOKEN` for the command line, or the header `Authorization: Bearer …`. It may have expired or been revoked.",
    "Forbidden": "Ask for a token with the scope that the message names.",
    "MethodNotAllowed": "Look the route up in the [HTTP reference](http.md).",
    "TooLarge": "Send less at once, or raise the limit that the message names.",
    "UnsupportedMedia": "Send JSON, NDJSON, CSV or Arrow, plain or packed with gzip or zstd, and say which in `Content-Type` and `Content-Encoding`.",
    "Conflict": "Look at what stands there now and decide again. The same call again gives the same answer, unless the other one is gone by then.",
    "Overloaded": "Wait `retry_after_s` (HTTP: `Retry-After`) and send the same again with the same batch id. If it stays: fold (`crannog fold NAME`), run `crannog serve`, or raise the limit that the message names.",
    "Unavailable": "Try again later, with the same batch id. If it stays, `crannog doctor` says what is wrong with Java, Spark, the disk or the folder.",
    "NotInstalled": "Run the command that the message gives, in the environment that Crannog runs in.",
    "SparkLost": "Do it again; Spark starts anew by itself. If it comes back, give Spark more memory (`spark_memory_mb`): its process was probably ended for the lack of it.",
    "SnapshotGone": "Read again: an erase won over a long read. A version that an erase lost stays lost. If the newest version says so each time, a file of the base is missing: restore it from a [backup](../operations.md#backup-and-restore).",
    "Corrupted": "Trying again does not help. The message names the file: restore it from a [backup](../operations.md#backup-and-restore).",
    "VerificationFailed": "The table is as it was. Run the job again; if it fails again, keep the message: it says which check found what. After an erase it names the place where a key can still be read: erase again.",
    "TimedOut": "Give it more time (`timeout_s`), or ask for less. A query that ends so has changed nothing.",
    "Cancelled": "Somebody took it back on purpose. What had not been committed was never seen by anybody.",
}


def page() -> str:
    """Return the page."""
    found = list(tree(errors.CrannogError))
    lines = [
        "# Errors",
        "",
        "Everything Crannog raises on purpose is a `crannog.CrannogError`. Its branches are sorted by what to do about them, and each",
        "fixes the status over HTTP, the exit code of the command line and whether the same request may be sent again.",
        'An error over HTTP is `{"error": {"code": …, "message": …, "retry_after_s": …}}`; on the command line it is one line on',
        "standard error.",
        "",
        *table(
            ("error", "code", "HTTP status", "exit code", "try again"),
            (
                (
                    "&nbsp;" * 4 * depth + f"[`{kind.__name__}`](#{kind.__name__.lower()})",
                    code(kind.code),
                    str(kind.http_status),
                    str(kind.exit_code),
                    "yes" if kind.retryable else "no",
                )
                for depth, kind in found
            ),
        ),
        "Exit code 0 means done. 1 is what has no other code, Ctrl-C included.",
        "",
        "## What each means, and what to do",
        "",
    ]
    for _, kind in found:
        lines += [
            f"### {kind.__name__}",
            "",
            f"{(kind.__doc__ or '').strip()}",
            "",
            f"*What to do.* {ADVICE[kind.__name__]}",
            "",
        ]
    return document(lines)


def tree(kind: type[errors.CrannogError], depth: int = 0) -> Iterator[tuple[int, type[errors.CrannogError]]]:
    """Yield an error and its branches, with how deep each stands."""
    yield depth, kind
    for branch in kind.__subclasses__():
        if branch.__module__ == errors.__name__:
            yield from tree(branch, depth + 1)
