"""A server under steady load for minutes, with the pipeline running behind it: spans over OTLP/HTTP, rows, or upserts.

Three senders post 1,000 at a time. Spans have five attributes, new trace ids and current times; rows go to a table without
a key; upserts change random keys of a table of a million rows. Senders of rows and upserts keep to a rate. Measured are
what was acknowledged, refusals, the time to the acknowledgement, the slowest ten seconds, processor time by process,
memory, and for spans the reads beside the load.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from stopwatch import Line, Results, quantile

SENDERS, SPANS, ATTRIBUTES, PER_TRACE = 3, 1_000, 5, 5
_TICKS = os.sysconf("SC_CLK_TCK")
_READS = {
    "newest 50 of a service": "/api/v1/traces?service=service-3&limit=50",
    "metrics by service": "/api/v1/traces/metrics?step=60s&group_by=service",
}


class Template:
    """A request whose trace ids and times can be replaced in place, so that a sender costs little."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        request = ExportTraceServiceRequest()
        services = []
        for number in range(10):
            resource = request.resource_spans.add()
            resource.resource.attributes.add(key="service.name").value.string_value = f"service-{number}"
            services.append(resource.scope_spans.add(scope={"name": "load"}))
        ids: dict[int, bytes] = {}
        starts = []
        for number in range(SPANS):
            trace, place = divmod(number, PER_TRACE)
            trace_id = ids.setdefault(trace, chance.randbytes(16))
            start = chance.getrandbits(62) | 1 << 61
            span = services[(trace + place) % 10].spans.add(
                trace_id=trace_id,
                span_id=(number + 1).to_bytes(8, "big"),
                parent_span_id=b"" if place == 0 else (number - place + 1).to_bytes(8, "big"),
                name=f"operation-{chance.randrange(10)}",
                kind=2 if place == 0 else 3,
                start_time_unix_nano=start,
                end_time_unix_nano=start + 1,
            )
            starts.append((start, place * 10**6, chance.randrange(10**6, 5 * 10**8)))
            if chance.random() < 0.02:
                span.status.code = 2
            for attribute in range(ATTRIBUTES):
                value = span.attributes.add(key=f"attribute.{attribute}").value
                if attribute % 3 == 2:
                    value.int_value = chance.randrange(1000)
                else:
                    value.string_value = f"value {chance.randrange(50)}"
        body = request.SerializeToString()
        self._body = np.frombuffer(bytearray(body), np.uint8)
        traces = [(place, trace) for trace, trace_id in ids.items() for place in _places(body, trace_id)]
        self._id_places = np.array([place for place, _ in traces])[:, None] + np.arange(16)
        self._id_traces = np.array([trace for _, trace in traces])
        times = []
        for start, shift, duration in starts:
            times += [(place, shift) for place in _places(body, start.to_bytes(8, "little"))]
            times += [(place, shift + duration) for place in _places(body, (start + 1).to_bytes(8, "little"))]
        self._time_places = np.array([place for place, _ in times])[:, None] + np.arange(8)
        self._shifts = np.array([shift for _, shift in times], np.int64)
        assert len(traces) == SPANS
        assert len(times) == 2 * SPANS

    def fill(self) -> bytes:
        ids = np.frombuffer(os.urandom(16 * (SPANS // PER_TRACE)), np.uint8).reshape(-1, 16)
        self._body[self._id_places] = ids[self._id_traces]
        times = (time.time_ns() + self._shifts).astype("<i8")
        self._body[self._time_places] = times.view(np.uint8).reshape(-1, 8)
        return self._body.tobytes()


def _places(body: bytes, part: bytes) -> Iterator[int]:
    place = body.find(part)
    while place >= 0:
        yield place
        place = body.find(part, place + 1)


class Sent(TypedDict):
    acks: list[tuple[float, float]]
    refused: list[float]
    cpu_s: float
    trace_id: str


def _send(port: int, seed: int, until: float, answers: Any) -> None:
    template = Template(seed)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    acks, refused = [], []
    while time.time() < until:
        body = template.fill()
        began = time.time()
        connection.request("POST", "/v1/traces", body, {"Content-Type": "application/x-protobuf"})
        response = connection.getresponse()
        response.read()
        if response.status == 200:
            acks.append((time.time(), time.time() - began))
        else:
            refused.append(time.time())
            time.sleep(min(float(response.headers.get("Retry-After", 1)), 5))
    trace_id = template._body[template._id_places[0]].tobytes().hex()
    answers.put(Sent(acks=acks, refused=refused, cpu_s=time.process_time(), trace_id=trace_id))


@dataclass
class Usage:
    """Processor time and the highest memory of the server's processes, by kind."""

    cpu_s: dict[str, float] = field(default_factory=dict)
    peak_mb: dict[str, float] = field(default_factory=dict)
    last_mb: dict[str, float] = field(default_factory=dict)
    _by_process: dict[tuple[int, str], float] = field(default_factory=dict)

    def look(self, server: int) -> None:
        memory: dict[str, float] = {}
        for pid, kind in _processes(server):
            try:
                stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
            except (OSError, IndexError):
                continue
            self._by_process[pid, kind] = (int(stat[11]) + int(stat[12])) / _TICKS
            memory[kind] = memory.get(kind, 0) + resident
        self.cpu_s = {}
        for (_, kind), spent in self._by_process.items():
            self.cpu_s[kind] = self.cpu_s.get(kind, 0) + spent
        self.last_mb = memory
        for kind, size in memory.items():
            self.peak_mb[kind] = max(self.peak_mb.get(kind, 0), size)


def _processes(server: int) -> Iterator[tuple[int, str]]:
    """Yield the processes of a server: itself, Spark's Java process, and the Python processes of Spark's tasks."""
    yield server, "server"
    waiting = [server]
    while waiting:
        parent = waiting.pop()
        try:
            tasks = list(Path(f"/proc/{parent}/task").iterdir())
            children = [int(pid) for task in tasks for pid in (task / "children").read_text().split()]
        except OSError:
            continue
        for pid in children:
            with_name = Path(f"/proc/{pid}/comm")
            try:
                yield pid, "Spark's JVM" if with_name.read_text().strip() == "java" else "Spark's tasks"
            except OSError:
                continue
            waiting.append(pid)


@contextmanager
def _server(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int, int]]:
    ports = _free_ports(3)
    environment = {
        **os.environ,
        "CRANNOG_WAREHOUSE": str(folder / "warehouse"),
        "CRANNOG_PORT": str(ports[0]),
        "CRANNOG_OTLP_HTTP_PORT": str(ports[1]),
        "CRANNOG_OTLP_GRPC_PORT": str(ports[2]),
    }
    command = [sys.executable, "-m", "crannog.cli.main", "serve"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        _wait_ready(process, ports[0])
        yield process, ports[0], ports[1]
    finally:
        process.terminate()
        process.wait(60)


def _free_ports(count: int) -> list[int]:
    import socket

    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _wait_ready(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.time() + 180
    while time.time() < deadline and process.poll() is None:
        try:
            if _get(port, "/healthz")[0] == 200:
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError("the server did not start")


def _get(port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _read(port: int, until: float, spent: dict[str, list[float]]) -> None:
    """Query the server now and then, beside the load."""
    known: list[str] = []
    while time.time() < until:
        for what, path in _READS.items():
            began = time.time()
            status, body = _get(port, path)
            if status == 200:
                spent.setdefault(what, []).append(time.time() - began)
                if what.startswith("newest"):
                    known = [trace["trace_id"] for trace in json.loads(body)["traces"]]
        for trace_id in known[:3]:
            began = time.time()
            if _get(port, f"/api/v1/traces/{trace_id}")[0] == 200:
                spent.setdefault("a trace by its id", []).append(time.time() - began)
        time.sleep(2)


@dataclass(frozen=True)
class Load:
    """What is sent, where, and what is expected of it."""

    title: str
    unit: str
    table: str
    per_s: int
    """What three senders together send in a second at most; 0 for as much as is acknowledged."""
    aim: str
    prepare: Callable[[int], None]
    send: Callable[[int, int, float, Any], None]
    """Called in a process of its own with a port, the number of the sender, the end, and a queue for a `Sent`."""
    is_otlp: bool = False


_ROWS, _KEYS = 1_000, 1_000_000
_TABLE = {"rows": "bench.load.events", "upserts": "bench.load.accounts"}


def _rows_of(chance: np.random.Generator, keys: np.ndarray[Any, Any]) -> bytes:
    count = len(keys)
    table = pa.table(
        {
            "id": keys,
            "at": pa.array(np.full(count, time.time_ns() // 1000), pa.timestamp("us", "UTC")),
            "amount": chance.random(count) * 1000,
            "kind": [f"kind {number}" for number in chance.integers(0, 20, count)],
            "note": [f"note {number}" for number in chance.integers(0, 10**6, count)],
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def _create(port: int, name: str, *, keyed: bool) -> None:
    properties = {
        "id": {"type": "integer"},
        "at": {"type": "string", "format": "date-time"},
        "amount": {"type": "number"},
        "kind": {"type": "string"},
        "note": {"type": "string"},
    }
    definition = {"schema": {"type": "object", "properties": properties}, "key": ["id"] if keyed else None}
    _request(port, "PUT", f"/api/v1/tables/{name}", json.dumps(definition).encode(), "application/json")
    if keyed:
        chance = np.random.default_rng(1)
        for start in range(0, _KEYS, 100_000):
            body = _rows_of(chance, np.arange(start, start + 100_000))
            _request(port, "PUT", f"/api/v1/tables/{name}/rows", body, _ARROW)
        _request(port, "POST", f"/api/v1/tables/{name}/fold", b"{}", "application/json")


_ARROW = "application/vnd.apache.arrow.stream"


def _request(port: int, method: str, path: str, body: bytes, content_type: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=900)
    try:
        connection.request(method, path, body, {"Content-Type": content_type})
        response = connection.getresponse()
        answer = response.read()
        assert response.status < 300, answer
        return answer
    finally:
        connection.close()


def _send_rows(port: int, seed: int, until: float, answers: Any) -> None:
    _send_at_rate(port, "POST", _TABLE["rows"], seed, until, answers, LOADS["rows"].per_s / SENDERS)


def _send_upserts(port: int, seed: int, until: float, answers: Any) -> None:
    _send_at_rate(port, "PUT", _TABLE["upserts"], seed, until, answers, LOADS["upserts"].per_s / SENDERS)


def _send_at_rate(port: int, method: str, name: str, seed: int, until: float, answers: Any, per_s: float) -> None:
    chance = np.random.default_rng(seed)
    # A few bodies, again and again, each with a batch id of its own: a sender should cost little.
    bodies = [_rows_of(chance, chance.choice(_KEYS, _ROWS, replace=False)) for _ in range(50)]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    acks, refused, number, began = [], [], 0, time.time()
    while time.time() < until:
        if (ahead := number * _ROWS / per_s - (time.time() - began)) > 0:
            time.sleep(ahead)
        sent = time.time()
        headers = {"Content-Type": _ARROW, "Crannog-Batch-Id": f"{seed}-{number}"}
        connection.request(method, f"/api/v1/tables/{name}/rows", bodies[number % len(bodies)], headers)
        response = connection.getresponse()
        response.read()
        if response.status == 200:
            acks.append((time.time(), time.time() - sent))
            number += 1
        else:
            refused.append(time.time())
            time.sleep(min(float(response.headers.get("Retry-After", 1)), 5))
    answers.put(Sent(acks=acks, refused=refused, cpu_s=time.process_time(), trace_id=""))


LOADS = {
    "spans": Load("Spans", "span", "crannog.traces.spans", 0, "≥ 40,000/s", lambda port: None, _send, is_otlp=True),
    "rows": Load(
        "Rows",
        "row",
        _TABLE["rows"],
        100_000,
        "≥ 100,000/s",
        lambda port: _create(port, _TABLE["rows"], keyed=False),
        _send_rows,
    ),
    "upserts": Load(
        "Upserts",
        "row",
        _TABLE["upserts"],
        20_000,
        "≥ 20,000/s",
        lambda port: _create(port, _TABLE["upserts"], keyed=True),
        _send_upserts,
    ),
}


@dataclass
class Measured:
    """What one run saw."""

    sent: list[Sent]
    usage: Usage
    cpu_under_load: dict[str, float]
    backlog: list[int]
    beside: dict[str, list[float]]
    quiet: dict[str, list[float]]
    rows: int


def sustained(
    results: Results, folder: Path, seconds: float, *, what: str = "spans", busy_core: bool = False, reads: bool = True
) -> dict[str, float]:
    """Send for some time, wait for the pipeline, and report. Returns the main figures."""
    load = LOADS[what]
    where = f"{load.title} under steady load for {seconds / 60:.0f} min" + (", one core busy" if busy_core else "")
    began, found = _measured(load, folder, seconds, busy_core=busy_core, reads=reads and load.is_otlp)
    acks = sorted(ack for each in found.sent for ack in each["acks"])
    refused = sum(len(each["refused"]) for each in found.sent)
    count = len(acks) * _ROWS
    by_ten = [0] * int(seconds // 10)
    for at, _ in acks:
        if (place := int((at - began) // 10)) < len(by_ten):
            by_ten[place] += _ROWS
    mean = count / seconds
    add = lambda *line, **more: results.add(where, Line(*line, **more))  # noqa: E731
    add("acknowledged", mean, f"{load.unit}s/s", more_is_better=True, aim=load.aim)
    add("slowest ten seconds, share of the mean", min(by_ten) / 10 / mean, "", more_is_better=True, aim="≥ 0.5")
    add("refused requests", refused, "", aim="0")
    add("acknowledgement, p50", quantile([took for _, took in acks], 0.5) * 1000)
    add("acknowledgement, p99", quantile([took for _, took in acks], 0.99) * 1000, aim="≤ 250 ms")
    usage = found.usage
    for kind, spent in usage.cpu_s.items():
        add(f"processor time per {load.unit}, {kind}", spent / count * 1e6, "µs")
    total = sum(usage.cpu_s.values()) / count * 1e6
    aim = "≤ 30 µs" if load.is_otlp else ""
    add(f"processor time per {load.unit}, all in", total, "µs", aim=aim)
    add(
        "of it after the load, until nothing was staged", total - sum(found.cpu_under_load.values()) / count * 1e6, "µs"
    )
    add(f"processor time per {load.unit}, senders", sum(each["cpu_s"] for each in found.sent) / count * 1e6, "µs")
    for kind, size in usage.peak_mb.items():
        aim = {"server": "≤ 1,536 MB", "Spark's JVM": "≤ 2,048 MB"}.get(kind, "")
        add(f"highest memory, {kind}", size, "MB", aim=aim)
    add("largest backlog", max(found.backlog, default=0), "rows")
    for name, times in found.beside.items():
        if found.quiet.get(name):
            ratio = quantile(times, 0.95) / quantile(found.quiet[name], 0.95)
            add(f"{name}, p95 beside the load", quantile(times, 0.95) * 1000, "ms")
            add(f"{name}, p95 against quiet", ratio, "x", aim="≤ 3x")
    expected = _KEYS if what == "upserts" else count
    assert found.rows == expected, f"{expected:,} rows were acknowledged, {found.rows:,} are there"
    return {"mean": mean, "refused": refused, "cpu_us": total}


def _measured(load: Load, folder: Path, seconds: float, *, busy_core: bool, reads: bool) -> tuple[float, Measured]:
    with _server(folder) as (process, port, otlp_port):
        load.prepare(port)
        usage, backlog = Usage(), []
        beside: dict[str, list[float]] = {}
        quiet: dict[str, list[float]] = {}
        before = dict(_cpu_of(process.pid))
        began = time.time()
        until = began + seconds
        answers: Any = multiprocessing.Queue()
        target = otlp_port if load.is_otlp else port
        senders = [
            multiprocessing.Process(target=load.send, args=(target, seed, until, answers)) for seed in range(SENDERS)
        ]
        burner = multiprocessing.Process(target=_burn, args=(until,))
        reader = threading.Thread(target=_read, args=(port, until, beside))
        for sender in senders:
            sender.start()
        if reads:
            reader.start()
        if busy_core:
            burner.start()
        while time.time() < until:
            time.sleep(2)
            usage.look(process.pid)
            backlog.append(_backlog(port, load.table))
        sent: list[Sent] = [answers.get(timeout=300) for _ in senders]
        under_load = _difference(usage.cpu_s, before)
        _drain(port, process.pid, usage, load)
        usage.cpu_s = _difference(usage.cpu_s, before)
        if reads:
            _read(port, time.time() + 20, quiet)
        status = json.loads(_get(port, f"/api/v1/tables/{load.table}")[1])
    rows = int(status.get("rows") or status.get("row_count") or 0)
    return began, Measured(sent, usage, under_load, backlog, beside, quiet, rows)


def _cpu_of(pid: int) -> dict[str, float]:
    usage = Usage()
    usage.look(pid)
    return usage.cpu_s


def _difference(after: dict[str, float], before: dict[str, float]) -> dict[str, float]:
    return {kind: spent - before.get(kind, 0) for kind, spent in after.items()}


def _burn(until: float) -> None:
    while time.time() < until:
        sum(range(10_000))


def _backlog(port: int, table: str) -> int:
    status, body = _get(port, f"/api/v1/tables/{table}")
    return int(json.loads(body).get("staged_rows", 0)) if status == 200 else 0


def _drain(port: int, pid: int, usage: Usage, load: Load) -> None:
    """Wait until everything is folded and derived."""
    paths = [f"/api/v1/tables/{load.table}/fold", *(["/api/v1/traces/derive"] if load.is_otlp else [])]
    for path in paths:
        _request(port, "POST", path, b"{}", "application/json")
        usage.look(pid)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=list(LOADS), default="spans")
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--busy-core", action="store_true", help="keep one core busy with other work")
    parser.add_argument("--no-reads", action="store_true", help="send only")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="crannog-sustained-") as name:
        try:
            sustained(
                Results(),
                Path(name),
                given.seconds,
                what=given.what,
                busy_core=given.busy_core,
                reads=not given.no_reads,
            )
        except Exception:
            print(Path(name, "log").read_text()[-3000:])
            raise
