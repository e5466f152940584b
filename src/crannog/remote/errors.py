"""What a server answers when it does not do what was asked, as the same errors that an embedded connection raises."""

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


def error_of(told: Mapping[str, Any]) -> CrannogError:
    """Return the error that the inner object of an error body stands for."""
    kind = _KINDS.get(str(told.get("code")), Unavailable)
    return kind(str(told.get("message")), retry_after_s=told.get("retry_after_s"))


def refusal(status: int, body: bytes, address: str) -> CrannogError:
    """Return the error of an answer that is none; one that does not come from Crannog, but from a proxy, is told as such."""
    try:
        told = json.loads(body)["error"]
        return error_of({"code": told["code"], "message": told["message"], "retry_after_s": told.get("retry_after_s")})
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
