"""The rules of HTTP/2 for the headers of a request and its trailers (RFC 9113, section 8)."""

from __future__ import annotations

from collections.abc import Sequence

Headers = Sequence[tuple[bytes, bytes]]

_PSEUDO = frozenset((b":method", b":scheme", b":path", b":authority"))
_REQUIRED = _PSEUDO - {b":authority"}
_OF_HTTP_1 = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"))


def are_a_request(headers: Headers) -> bool:
    """Tell whether these headers may begin a request: its own fields once each and first, then the others."""
    pseudo = [name for name, _ in headers if name[:1] == b":"]
    first, others = headers[: len(pseudo)], headers[len(pseudo) :]
    known = set(pseudo)
    if len(known) != len(pseudo) or not _REQUIRED <= known <= _PSEUDO or pseudo != [name for name, _ in first]:
        return False
    return dict(first)[b":path"] != b"" and _are_fields(others)


def are_trailers(headers: Headers) -> bool:
    """Tell whether these headers may end a request."""
    return all(name[:1] != b":" for name, _ in headers) and _are_fields(headers)


def _are_fields(headers: Headers) -> bool:
    return all(
        name and name == name.lower() and name not in _OF_HTTP_1 and (name != b"te" or value == b"trailers")
        for name, value in headers
    )


def content_length(headers: Headers) -> int | None:
    """Return how many bytes the body has, if the request says so; -1, which no body has, for what is no number."""
    said = [value for name, value in headers if name == b"content-length"]
    if not said:
        return None
    return int(said[0]) if len(set(said)) == 1 and said[0].isdigit() and len(said[0]) < 20 else -1
