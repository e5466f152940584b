"""A proxy on loopback that loses answers or breaks off in the middle of them, as networks do."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class FaultyProxy:
    """Passes bytes to a server and back. `lose` answers vanish after the server gave them; `cut_after` ends one midway."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._target = (parts.hostname, parts.port)
        self.lose = 0
        self.lost = 0
        self.cut_after: int | None = None
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(self._target)
                except OSError:
                    client.close()
                    continue
                threading.Thread(target=self._pump, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._pump, args=(server, client, True), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        passed = 0
        with suppress(OSError):
            while data := source.recv(65536):
                if is_answer and self._breaks(passed + len(data)):
                    break
                sink.sendall(data)
                passed += len(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _breaks(self, passed: int) -> bool:
        with self._lock:
            if self.lose:
                self.lose -= 1
                self.lost += 1
                return True
            return self.cut_after is not None and passed > self.cut_after

    def __enter__(self) -> FaultyProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
