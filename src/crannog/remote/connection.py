"""HTTP to one server: a connection pool, errors by their code, and retries after network failures.

A response of the server is final, even an error: the caller decides what to do, as with an embedded connection. Only
requests without a response are retried, and only if they are idempotent: reads, and writes with a batch id.
"""

from __future__ import annotations

import json
import os
import random
import socket
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypedDict, TypeVar, Unpack

import httpx

from crannog import errors
from crannog.api.arguments import is_loopback
from crannog.errors import CallerError, Conflict, CrannogError, NotFound, Overloaded, Unavailable
from crannog.version import VERSION

ARROW = "application/vnd.apache.arrow.stream"
NDJSON = "application/x-ndjson"
Params = Mapping[str, str | list[str] | None]
T = TypeVar("T")

# A little longer than the time limit of the server, whose error says more than a timeout here.
_CONNECT_S, READ_S, _WRITE_S, _POOL_S = 10.0, 330.0, 60.0, 30.0
_CONNECTIONS, _KEPT = 1_000, 64
_LONGEST_QUOTE = 200
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
WRITE_TRIES, READ_TRIES, ONE_TRY = 6, 3, 1
# A query may run for hours; TCP keepalive detects a server that is gone.
_KEEPALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    *[
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (
            ("TCP_KEEPIDLE", 15),
            ("TCP_KEEPINTVL", 5),
            ("TCP_KEEPCNT", 4),
            ("TCP_USER_TIMEOUT", 60_000),
        )
        if hasattr(socket, name)
    ],
]


class RequestParts(TypedDict, total=False):
    """What a request sends besides its method and path, and how many seconds it waits for each part of the response."""

    params: Params | None
    document: Any
    content: bytes | None
    headers: Mapping[str, str] | None
    read_s: float | None


class Connection:
    """A pool of connections to one server. Thread-safe and fork-safe."""

    def __init__(self, address: str, token: str | None = None) -> None:
        self.address, self._url = _checked(address)
        if token is not None and not (token and token.isascii() and token.isprintable()):
            raise CallerError("a token must be printable ASCII text; the given one is not")
        self._token = token
        self._closed = False
        self._client = self._made()
        _connections.add(self)

    def _made(self) -> httpx.Client:
        near = is_loopback(self._url.host)
        headers = {"User-Agent": f"crannog/{VERSION}"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        if near:
            headers["Accept-Encoding"] = "identity"  # on one machine, compression costs more than the transfer
        secure = self._url.scheme == "https"
        transport = httpx.HTTPTransport(
            verify=secure,
            limits=httpx.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_KEPT, keepalive_expiry=30),
            socket_options=_KEEPALIVE,
        )
        timeout = httpx.Timeout(connect=_CONNECT_S, read=READ_S, write=_WRITE_S, pool=_POOL_S)
        return httpx.Client(base_url=self._url, headers=headers, timeout=timeout, transport=transport, trust_env=False)

    def check_open(self) -> None:
        if self._closed:
            raise CallerError("this connection is closed; connect again")

    def ask(self, method: str, path: str, *, tries: int = ONE_TRY, **parts: Unpack[RequestParts]) -> httpx.Response:
        """Send a request and return the whole response; raises the error of an error response.

        A request without a response is sent up to `tries` times; a `document` that is a function is called for each
        of them. Raises Unavailable, with the address, if none gets a response.
        """

        def whole() -> httpx.Response:
            with self._answer(method, path, **parts) as response:
                response.read()
                return response

        return self._again(whole, tries, f"{method} {path}")

    @contextmanager
    def opened(self, method: str, path: str, **parts: Unpack[RequestParts]) -> Iterator[httpx.Response]:
        """Send a request and yield its response while it arrives; leaving the block closes it."""
        try:
            with self._answer(method, path, **parts) as response:
                yield response
        except httpx.TransportError as error:
            raise self._lost(error, f"{method} {path}") from error

    @contextmanager
    def _answer(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        document: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        read_s: float | None = READ_S,
    ) -> Iterator[httpx.Response]:
        self.check_open()
        all_headers = dict(headers or {})
        if document is not None:
            content = _json(document() if callable(document) else document)
            all_headers["Content-Type"] = "application/json"
        sent_params = {name: value for name, value in (params or {}).items() if value is not None}
        timeout = httpx.Timeout(connect=_CONNECT_S, read=read_s, write=_WRITE_S, pool=_POOL_S)
        try:
            with self._client.stream(
                method,
                f"/api/v1{path}",
                params=sent_params or None,
                content=content,
                headers=all_headers,
                timeout=timeout,
            ) as response:
                if response.status_code >= 400:
                    raise refusal(response.status_code, response.read(), self.address)
                if response.status_code >= 300:
                    raise CallerError(
                        f"{self.address} redirects to {response.headers.get('Location')}; use that address"
                    )
                yield response
        except RuntimeError:
            self.check_open()  # raises our own error if another thread closed the connection
            raise

    def _again(self, act: Callable[[], T], tries: int, what: str) -> T:
        pause = _FIRST_PAUSE_S
        for left in range(tries - 1, -1, -1):
            try:
                return act()
            except httpx.TransportError as error:
                # A refused connection is unlikely to recover soon, so only writes are retried.
                refused = isinstance(error, httpx.ConnectError) and tries < WRITE_TRIES
                if not left or refused or isinstance(error, (httpx.PoolTimeout, httpx.UnsupportedProtocol)):
                    raise self._lost(error, what) from error
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, _LONGEST_PAUSE_S)
        raise AssertionError("the last try returns or raises")

    def _lost(self, error: httpx.TransportError, what: str) -> Overloaded | Unavailable:
        reason = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, httpx.PoolTimeout):
            return Overloaded(
                f"{_CONNECTIONS:,} requests to {self.address} are open, which is the limit; close streams that are not needed",
                retry_after_s=1,
            )
        if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
            return Unavailable(
                f"no server responds at {self.address} ({reason}); start one with `crannog serve`, or check the address",
                retry_after_s=1,
            )
        return Unavailable(
            f"the server at {self.address} did not complete {what} ({reason}); try again", retry_after_s=1
        )

    def close(self) -> None:
        self._closed = True
        self._client.close()

    def _renew(self) -> None:
        # The sockets belong to the parent: two processes that read from one would receive each other's responses.
        if not self._closed:
            self._client = self._made()


_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


def _renew_all() -> None:
    for connection in list(_connections):
        connection._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)


def error_of(error: Mapping[str, Any]) -> CrannogError:
    """Return the error that the inner object of an error body describes."""
    return errors.error_of(str(error["code"]), str(error["message"]), error.get("retry_after_s"))


def refusal(status: int, body: bytes, address: str) -> CrannogError:
    """Return the error of an error response; if it did not come from Crannog, for example from a proxy, the message says so."""
    try:
        return error_of(json.loads(body)["error"])
    except (ValueError, TypeError, KeyError):
        pass
    text = " ".join(body[:_LONGEST_QUOTE].decode("utf-8", "replace").split())
    message = (
        f"{address} responded with {status}, but not as a Crannog server: {text or 'empty body'}; check the address"
    )
    if status >= 500:
        return Unavailable(message)
    return {404: NotFound, 409: Conflict, 429: Overloaded}.get(status, CallerError)(message)


def _checked(address: str) -> tuple[str, httpx.URL]:
    trimmed = address.rstrip("/")
    try:
        url = httpx.URL(trimmed)
    except (httpx.InvalidURL, TypeError) as error:
        raise CallerError(
            f"{address!r} is not the address of a server: {error}; use one like http://127.0.0.1:7117"
        ) from None
    if url.scheme not in ("http", "https") or not url.host:
        raise CallerError(f"{address!r} is not the address of a server; use one like http://127.0.0.1:7117")
    return trimmed, url


def _json(document: Any) -> bytes:
    try:
        return json.dumps(document, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise CallerError(f"the request cannot be encoded as JSON: {error}") from None
