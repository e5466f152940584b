"""A trace as a file for other viewers: OTLP, Jaeger's JSON, or Chrome trace events for Perfetto; written as it is read.

Each line of the document has up to 5,000 spans, and only one line is in memory.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from crannog.api.traces import Span
from crannog.api.traces.requests import DownloadTrace
from crannog.engine.sql.running_queries import check_cancelled
from crannog.errors import CallerError
from crannog.formats.json_values import to_plain_json
from crannog.traces.export import TraceExport, lines_of_traces, request_of_rows
from crannog.traces.ingest.decode import json_of_request
from crannog.traces.jaeger.responses import Processes, shown_id
from crannog.traces.span_store import SpanStore
from crannog.traces.span_table import SPAN_ID_BYTES, parse_trace_id
from crannog.traces.trace import span_values
from crannog.traces.tree.tree import Tree

if TYPE_CHECKING:
    from crannog.traces.tree.tree import Numbers

_NS_PER_US = 1_000


def download(store: SpanStore, request: DownloadTrace) -> Generator[str, None, None]:
    """Yield the lines of a document with one trace. Raises CallerError or NotFound before the first."""
    trace_id, write = parse_trace_id(request.trace_id), _FORMATS.get(request.format)
    if write is None:
        raise CallerError(f"format must be one of {', '.join(_FORMATS)}, got {request.format!r}"[:200])
    return lines_of_traces(store, [trace_id.hex()], lambda found: write(store, found))


def _otlp(store: SpanStore, found: TraceExport) -> Iterator[str]:
    groups = (json_of_request(request_of_rows(rows)).get("resourceSpans", []) for rows in found.parts())
    return _document('{"resourceSpans":[', groups, "]}")


def _jaeger(store: SpanStore, found: TraceExport) -> Iterator[str]:
    processes = Processes()
    spans = ([processes.span(span) for span in _spans(rows)] for rows in found.parts())
    start = f'{{"data":[{{"traceID":{json.dumps(shown_id(found.ids[0].hex()))},"spans":['
    yield from _document(start, spans, "],")
    yield f'"processes":{_dumped(processes.by_name)},"warnings":null}}],"total":0,"limit":0,"offset":0,"errors":null}}'


def _perfetto(store: SpanStore, found: TraceExport) -> Iterator[str]:
    tree = store.trees.get(found.table, found.snapshot, found.ids[0])
    services = tree.arrays.services.dictionary.to_pylist()
    named = [
        {"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": service}}
        for number, service in enumerate(services, 1)
    ]
    about = {"trace_id": found.ids[0].hex(), "start_ns": str(tree.start_ns)}
    tracks = Tracks(tree)
    events = ([tracks.event(span) for span in _spans(rows)] for rows in found.parts())
    return _document(
        f'{{"displayTimeUnit":"ms","otherData":{_dumped(about)},"traceEvents":[',
        (part for parts in ([named], events) for part in parts),
        "]}",
    )


_FORMATS: dict[str, Callable[[SpanStore, TraceExport], Iterator[str]]] = {
    "otlp": _otlp,
    "jaeger": _jaeger,
    "perfetto": _perfetto,
}


def _spans(rows: pa.Table) -> Iterator[Span]:
    return (Span(*values) for values in span_values(rows))


def _document(start: str, parts: Iterable[list[Any]], end: str) -> Iterator[str]:
    """Yield the items of lists between two texts, a line for each list."""
    yield start
    separator = ""
    for items in parts:
        if items:
            yield separator + _dumped(items)[1:-1]
            separator = ","
    yield end


def _dumped(value: Any) -> str:
    # In ASCII, so that no reader finds a line separator of Unicode inside a line.
    return json.dumps(value, separators=(",", ":"))


class Tracks:
    """The spans of a trace as events of Perfetto, which shows events of a thread as nested: others need another thread.

    A process is a service. A span is on the thread of its parent if that is of the same service and no sibling is running
    there, else on the first thread of its service that is free.
    """

    def __init__(self, tree: Tree) -> None:
        import numpy as np

        from crannog.traces.tree.tree_rows import numbers_of

        self._services = numbers_of(tree.arrays.services.indices, np.int32)
        self._tracks = tracks_of(tree, self._services)
        self._start_ns = tree.start_ns  # a double has not enough digits for microseconds since 1970
        ids = numbers_of(tree.arrays.ids, ">u8")
        self._by_id = np.argsort(ids)
        self._sorted_ids = ids[self._by_id].astype(np.uint64)

    def event(self, span: Span) -> dict[str, Any]:
        number = int.from_bytes(bytes.fromhex(span.span_id)[:SPAN_ID_BYTES])
        place = int(self._sorted_ids.searchsorted(self._sorted_ids.dtype.type(number)))
        # A trace may have more spans than its tree.
        known = place < len(self._sorted_ids) and int(self._sorted_ids[place]) == number
        index = int(self._by_id[place]) if known else -1
        details = {
            "span_id": span.span_id,
            "parent_span_id": span.parent_span_id,
            "kind": span.kind,
            "status": span.status,
            "status_message": span.status_message or None,
            **{f"resource.{key}": value for key, value in span.resource.items()},
            **span.attributes,
        }
        return {
            "ph": "X",
            "name": span.name,
            "cat": span.service,
            "ts": (span.start_ns - self._start_ns) / _NS_PER_US,
            "dur": span.duration_ns / _NS_PER_US,
            "pid": int(self._services[index]) + 1 if known else 0,
            "tid": int(self._tracks[index]) if known else 0,
            "args": to_plain_json({key: value for key, value in details.items() if value is not None}),
        }


def tracks_of(tree: Tree, services: Numbers) -> list[int]:
    """Return the number of the thread of each span; the spans of one thread are nested or follow each other."""
    starts, ends, parents = tree.arrays.starts.tolist(), tree.arrays.ends.tolist(), tree.parents.tolist()
    of_service = services.tolist()
    tracks = [0] * len(tree)
    running: list[list[int]] = [[]]
    """The spans that enclose the last one of each track, innermost last; track 0 is not used."""
    free: dict[int, list[tuple[int, int]]] = {}
    """For each service, its tracks by the time at which their outermost span ends."""
    for index, (start, end, parent, service) in enumerate(zip(starts, ends, parents, of_service, strict=True)):
        if not index % 10_000:
            check_cancelled()
        if parent >= 0 and of_service[parent] == service and tracks[parent]:
            stack = running[tracks[parent]]
            while stack and stack[-1] != parent and ends[stack[-1]] <= start:
                stack.pop()
            if stack and stack[-1] == parent and end <= ends[parent] and start >= starts[parent]:
                stack.append(index)
                tracks[index] = tracks[parent]
                continue
        waiting = free.setdefault(service, [])
        if waiting and waiting[0][0] <= start:
            track = heapq.heappop(waiting)[1]
        else:
            track = len(running)
            running.append([])
        running[track] = [index]
        tracks[index] = track
        heapq.heappush(waiting, (end, track))
    return tracks
