"""The rules of HTTP/2 for the headers of a request and its trailers (RFC 9113, section 8)."""

from __future__ import annotations

from collections.abc import Sequence

Headers = Sequence[tuple[bytes, bytes]]

_PSEUDO = frozenset((b":method", b":scheme", b":path", b":authority"))
_REQUIRED = _PSEUDO - {b":authority"}
_HTTP_1_ONLY = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"))


def is_request(headers: Headers) -> bool:
    """Return whether headers can start a request: each pseudo-header once and before all other fields."""
    pseudo = [name for name, _ in headers if name[:1] == b":"]
    first, others = headers[: len(pseudo)], headers[len(pseudo) :]
    known = set(pseudo)
    if len(known) != len(pseudo) or not _REQUIRED <= known <= _PSEUDO or pseudo != [name for name, _ in first]:
        return False
    return dict(first)[b":path"] != b"" and _are_valid_fields(others)


def is_trailers(headers: Headers) -> bool:
    """Return whether headers can be the trailers of a request."""
    return all(name[:1] != b":" for name, _ in headers) and _are_valid_fields(headers)


def _are_valid_fields(headers: Headers) -> bool:
    return all(
        name and name == name.lower() and name not in _HTTP_1_ONLY and (name != b"te" or value == b"trailers")
        for name, value in headers
    )


def content_length(headers: Headers) -> int | None:
    """Return the declared length of the body, None without one, and -1, which no body has, for an invalid one."""
    values = [value for name, value in headers if name == b"content-length"]
    if not values:
        return None
    return int(values[0]) if len(set(values)) == 1 and values[0].isdigit() and len(values[0]) < 20 else -1
