"""The receivers under bad bodies and sudden death: no server error, nothing good lost, nothing kept twice."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import httpx
import pytest
import zstandard
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from crannog.embedded import EmbeddedLake
from crannog.settings import Settings
from crannog.traces.ingest.decode import json_of_request
from doors import EXPORT, JSON, PROTOBUF, Doors, receiving
from otlp_samples import START, request_of, span, span_id, trace_id

CHILD = Path(__file__).parents[1] / "support" / "otlp_child.py"
SPANS_EACH = 3

# -- corrupted bodies ----------------------------------------------------------------------------------------------


def sample(number: int) -> ExportTraceServiceRequest:
    """A request with a bit of everything."""
    one = span(
        number,
        1,
        attributes={"k": 1, "t": "text", "b": b"\x00\xff", "l": [1, "x", None], "m": {"a": 1.5}, "d": float("nan")},
    )
    one.events.add(name="event", time_unix_nano=START, attributes=one.attributes)
    one.links.add(trace_id=trace_id(7), span_id=span_id(8), attributes=one.attributes)
    one.status.code, one.status.message = 2, "broken"  # type: ignore[assignment]
    return request_of(one, span(number, 2, 1, kind=3), service="sample")


def damaged(body: bytes, rng: random.Random) -> bytes:
    """A body with bytes changed, cut, doubled or put in."""
    data = bytearray(body)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(data)) if data else 0
        match rng.randrange(5):
            case 0:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                data[at : at + 1] = bytes([data[at] ^ (1 << rng.randrange(8))]) if data else b""
            case 2:
                del data[at : at + rng.choice((1, 4, len(data)))]
            case 3:
                data[at:at] = rng.randbytes(rng.choice((1, 3, 40)))
            case _:
                data[at:at] = data[at : at + rng.choice((1, 8, 64))]
    return bytes(data)


def zipkin(number: int) -> bytes:
    document = {
        "traceId": trace_id(number).hex(),
        "id": "b7ad6b7169203331",
        "parentId": "01",
        "name": "get",
        "kind": "CLIENT",
        "shared": False,
    }
    document |= {
        "timestamp": START // 1000,
        "duration": 1_000,
        "localEndpoint": {"serviceName": "zip", "ipv4": "1.2.3.4", "port": 80},
    }
    return json.dumps(
        [{**document, "annotations": [{"timestamp": START // 1000, "value": "x"}], "tags": {"a": "b", "error": "true"}}]
    ).encode()


WAYS: dict[str, tuple[Callable[[int], bytes], str, str, str]] = {
    "protobuf": (lambda n: sample(n).SerializeToString(), PROTOBUF, "identity", "/v1/traces"),
    "json": (lambda n: json.dumps(json_of_request(sample(n))).encode(), JSON, "identity", "/v1/traces"),
    "gzip": (lambda n: gzip.compress(sample(n).SerializeToString()), PROTOBUF, "gzip", "/v1/traces"),
    "zstd": (lambda n: zstandard.compress(sample(n).SerializeToString()), PROTOBUF, "zstd", "/v1/traces"),
    "zipkin": (zipkin, JSON, "identity", "/api/v2/spans"),
}


@pytest.mark.parametrize("way", [*WAYS, "grpc"])
def test_corrupted_bodies_give_no_server_error_and_lose_nothing_good(tmp_path: Path, way: str) -> None:
    corrupted(tmp_path, way, 500)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("way", [*WAYS, "grpc"])
def test_many_corrupted_bodies_give_no_server_error_and_lose_nothing_good(tmp_path: Path, way: str) -> None:
    corrupted(tmp_path, way, 20_000)


def corrupted(folder: Path, way: str, count: int) -> None:
    make, media, encoding, path = WAYS["protobuf" if way == "grpc" else way]
    with receiving(folder) as doors:

        def send(number: int) -> tuple[bool, int]:
            """A good request each tenth time; returns whether it was, and what came of it."""
            good = number % 10 == 0
            body = make(number if good else 1)
            body = body if good else damaged(body, random.Random(f"{way}{number}"))
            if way == "grpc":
                return good, over_grpc(doors, body)
            return good, doors.post(body, media, path, content_encoding=encoding).status_code

        with ThreadPoolExecutor(8) as threads:
            outcomes = Counter(threads.map(send, range(10, count + 10)))
        done = 202 if way == "zipkin" else 200
        assert {status for good, status in outcomes if good} == {done}
        assert {status for good, status in outcomes if not good} <= {done, 400, 413}
        assert outcomes[False, 400] > count // 10
        for number in range(10, count + 10, 10 * (count // 500)):
            assert doors.lake.traces.get(trace_id(number).hex()).spans
        # What was taken of the others can be read by everybody.
        page = doors.lake.traces.search(limit=1_000, count=True)
        assert page.total is not None
        assert page.total >= sum(count for (good, status), count in outcomes.items() if good)
        assert doors.lake.traces.search_spans(limit=10_000).spans
        assert doors.lake.traces.services()


def over_grpc(doors: Doors, body: bytes) -> int:
    try:
        doors.call(body)
    except grpc.RpcError as error:
        return {grpc.StatusCode.INVALID_ARGUMENT: 400, grpc.StatusCode.RESOURCE_EXHAUSTED: 413}.get(error.code(), 500)
    return 200


# -- sudden death --------------------------------------------------------------------------------------------------


class Load:
    """Senders that know what was acknowledged: numbers of traces; what got no answer is sent again to the next process."""

    def __init__(self) -> None:
        self.acknowledged: set[int] = set()
        self.unsure: set[int] = set()
        self._next = 1_000
        self._lock = threading.Lock()

    def number(self) -> int:
        with self._lock:
            if self.unsure:
                return self.unsure.pop()
            self._next += 1
            return self._next

    def wait_for(self, count: int) -> None:
        """Wait until so many are acknowledged: the first request of a process takes its time."""
        ends = time.monotonic() + 60
        while len(self.acknowledged) < count:
            assert time.monotonic() < ends
            time.sleep(0.01)

    def run(self, http_port: int, grpc_port: int, stop: threading.Event, over_http: bool) -> None:
        client = httpx.Client(timeout=60, trust_env=False)
        channel = grpc.insecure_channel(f"127.0.0.1:{grpc_port}", options=[("grpc.enable_retries", 0)])
        export = channel.unary_unary(EXPORT)
        while not stop.is_set():
            number = self.number()
            try:
                if over_http:
                    answer = client.post(
                        f"http://127.0.0.1:{http_port}/v1/traces",
                        content=body_of(number),
                        headers={"Content-Type": PROTOBUF},
                    )
                    assert answer.status_code == 200, answer.text
                else:
                    export(body_of(number), timeout=60)
            except (httpx.HTTPError, grpc.RpcError):
                with self._lock:
                    self.unsure.add(number)
                break
            with self._lock:
                self.acknowledged.add(number)
        client.close()
        channel.close()


def body_of(number: int) -> bytes:
    return request_of(
        *(span(number, place, None if place == 1 else 1) for place in range(1, SPANS_EACH + 1))
    ).SerializeToString()


def test_killed_under_load_nothing_acknowledged_is_lost_and_nothing_doubled(tmp_path: Path) -> None:
    killed(tmp_path, rounds=1, seconds=0.8)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_many_times_under_load_nothing_acknowledged_is_lost_and_nothing_doubled(tmp_path: Path) -> None:
    killed(tmp_path, rounds=15, seconds=3.0)


def killed(folder: Path, *, rounds: int, seconds: float) -> None:
    warehouse, load = folder / "warehouse", Load()
    for _ in range(rounds):
        child = subprocess.Popen([sys.executable, str(CHILD), str(warehouse)], stdout=subprocess.PIPE, text=True)
        try:
            assert child.stdout is not None
            http_port, grpc_port = map(int, child.stdout.readline().split())
            stop = threading.Event()
            senders = [
                threading.Thread(target=load.run, args=(http_port, grpc_port, stop, place % 2 == 0))
                for place in range(4)
            ]
            for sender in senders:
                sender.start()
            load.wait_for(len(load.acknowledged) + 20)
            time.sleep(seconds * random.random())
        finally:
            child.kill()
            child.wait()
        for sender in senders:
            sender.join(30)
            assert not sender.is_alive()
        stop.set()
    assert load.acknowledged
    settings = Settings(warehouse=str(warehouse), spark_memory_mb=1024)
    with EmbeddedLake(str(warehouse), settings=settings) as lake:
        # Sent once more, as a client would that got no answer.
        for number in load.unsure:
            lake.traces.write_otlp(body_of(number))
        rows = lake.table("crannog.traces.spans").to_arrow().select(["trace_id", "span_id"]).to_pylist()
    counted = Counter((row["trace_id"], row["span_id"]) for row in rows)
    sent = load.acknowledged | load.unsure
    assert set(counted) == {(trace_id(number), span_id(place)) for number in sent for place in range(1, SPANS_EACH + 1)}
    assert set(counted.values()) == {1}
