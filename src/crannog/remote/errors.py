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
    """Return the error that the inner object of an error body stands for."""
    kind = _KINDS.get(str(error.get("code")), Unavailable)
    return kind(str(error.get("message")), retry_after_s=error.get("retry_after_s"))


def refusal(status: int, body: bytes, address: str) -> CrannogError:
    """Return the error of an error response; the message says so if it came from a proxy and not from Crannog."""
    try:
        error = json.loads(body)["error"]
        return error_of(
            {"code": error["code"], "message": error["message"], "retry_after_s": error.get("retry_after_s")}
        )
    except (ValueError, TypeError, KeyError):
        pass
    said = " ".join(body[:_LONGEST_QUOTE].decode("utf-8", "replace").split())
    message = (
        f"{address} answered {status}, and not in the words of a Crannog server: {said or 'nothing'}; check the address"
    )
    if status >= 500:
        return Unavailable(message)
    return {404: NotFound, 409: Conflict, 429: Overloaded}.get(status, CallerError)(message)


def _tree(kind: type[CrannogError]) -> Iterator[type[CrannogError]]:
    yield kind
    for branch in kind.__subclasses__():
        yield from _tree(branch)


_KINDS = {kind.code: kind for kind in reversed(list(_tree(CrannogError)))}
