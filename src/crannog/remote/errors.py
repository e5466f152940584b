"""Error responses of a server, as the errors that an embedded connection raises."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from crannog.errors import (
    CallerError,
    Conflict,
    CrannogError,
    NotFound,
    Overloaded,
    Unavailable,
)

_LONGEST_QUOTE = 200


def error_of(error: Mapping[str, Any]) -> CrannogError:
    """Return the error that the inner object of an error body describes."""
    kind = _KINDS.get(str(error.get("code")), Unavailable)
    return kind(str(error.get("message")), retry_after_s=error.get("retry_after_s"))


def refusal(status: int, body: bytes, address: str) -> CrannogError:
    """Return the error of an error response; if it did not come from Crannog, for example from a proxy, the message says so."""
    try:
        error = json.loads(body)["error"]
        return error_of(
            {"code": error["code"], "message": error["message"], "retry_after_s": error.get("retry_after_s")}
        )
    except (ValueError, TypeError, KeyError):
        pass
    text = " ".join(body[:_LONGEST_QUOTE].decode("utf-8", "replace").split())
    message = (
        f"{address} responded with {status}, but not as a Crannog server: {text or 'empty body'}; check the address"
    )
    if status >= 500:
        return Unavailable(message)
    return {404: NotFound, 409: Conflict, 429: Overloaded}.get(status, CallerError)(message)


def _tree(kind: type[CrannogError]) -> Iterator[type[CrannogError]]:
    yield kind
    for branch in kind.__subclasses__():
        yield from _tree(branch)


_KINDS = {kind.code: kind for kind in reversed(list(_tree(CrannogError)))}
