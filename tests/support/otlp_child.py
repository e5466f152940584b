"""A process with the receivers on free ports, to be killed: prints both ports and serves until then."""

from __future__ import annotations

import sys
import threading

from crannog.embedded import EmbeddedLake
from crannog.server.otlp.receivers import Receivers
from crannog.server.service import Service
from crannog.settings import Settings


def main(folder: str) -> None:
    settings = Settings(warehouse=folder, otlp_http_port=0, otlp_grpc_port=0, audit=False, spark_memory_mb=1024)
    receivers = Receivers(Service(EmbeddedLake(folder, settings=settings)), "127.0.0.1")
    receivers.start()
    print(receivers.http_port, receivers.grpc_port, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1])
