"""Everything that reads what strangers send, as functions of bytes for a fuzzer.

A target returns, or raises an error of Crannog; anything else is a finding. Where reading has an inverse, or two ways to
the same result, the target compares them.
"""

from __future__ import annotations

import atexit
import base64
import json
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from crannog.errors import CrannogError

CORPUS = Path(__file__).parent / "corpus"
TABLE_ID = "6d1f8a0e-0000-4000-8000-000000000000"
LIMIT_BYTES, LIMIT_ROWS = 1_000_000, 10_000
Target = Callable[[bytes], None]
TARGETS: dict[str, Target] = {}


def target(work: Target) -> Target:
    """Register a target under its name; the errors that callers get are no findings."""

    def guarded(data: bytes) -> None:
        with suppress(CrannogError):
            work(data)

    TARGETS[work.__name__] = guarded
    return guarded


def corpus(name: str) -> list[bytes]:
    """Return the inputs that are kept for a target, one a line in base64."""
    path = CORPUS / f"{name}.txt"
    return [base64.b64decode(line) for line in path.read_bytes().splitlines()] if path.exists() else []


# -- spans -------------------------------------------------------------------------------------------------------


def _spans(data: bytes, content_type: str) -> None:
    from crannog.traces.ingest import decode

    request = decode.parsed_request(data, content_type=content_type, encoding=None, limit=LIMIT_BYTES)
    rows, rejected = decode.converted(request)
    together = decode.converted_together([request, request])
    if together is not None:
        assert rejected.count == 0
        assert all(found.equals(rows) for found, _ in together), "two requests together differ from one alone"


@target
def otlp_protobuf(data: bytes) -> None:
    _spans(data, "application/x-protobuf")


@target
def otlp_json(data: bytes) -> None:
    _spans(data, "application/json")


@target
def zipkin(data: bytes) -> None:
    from crannog.traces.ingest.decode import ZIPKIN

    _spans(data, ZIPKIN)


@target
def compressed(data: bytes) -> None:
    from crannog.formats.row_bodies import ENCODINGS, decompressed

    encoding = ENCODINGS[data[0] % len(ENCODINGS)] if data else ENCODINGS[0]
    assert len(decompressed(data[1:], encoding, LIMIT_BYTES)) <= LIMIT_BYTES


# -- rows --------------------------------------------------------------------------------------------------------

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("small", pa.int8()),
        pa.field("text", pa.string()),
        pa.field("ratio", pa.float64()),
        pa.field("price", pa.decimal128(12, 3)),
        pa.field("yes", pa.bool_()),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("raw", pa.binary()),
        pa.field("list", pa.list_(pa.int32())),
        pa.field("inner", pa.struct([("a", pa.string()), ("b", pa.float32())])),
        pa.field("map", pa.map_(pa.string(), pa.int64())),
    ]
)


def _rows(data: bytes, form: str) -> None:
    from crannog.engine.rows import to_arrow
    from crannog.formats.row_bodies import parse_rows
    from crannog.formats.row_limits import RowLimit

    parsed = parse_rows(data, form, SCHEMA, "the body", strict=True, limit=RowLimit(LIMIT_ROWS, "a.b.c"))
    made = to_arrow(parsed, SCHEMA, table="a.b.c", verb="append to")
    made.validate(full=True)
    assert made.num_rows == (parsed.num_rows if isinstance(parsed, pa.Table) else len(parsed))


@target
def json_rows(data: bytes) -> None:
    _rows(data, "json")


@target
def ndjson_rows(data: bytes) -> None:
    _rows(data, "ndjson")


@target
def csv_rows(data: bytes) -> None:
    _rows(data, "csv")


@target
def arrow_rows(data: bytes) -> None:
    from crannog.engine.rows import to_arrow
    from crannog.formats.row_limits import RowLimit
    from crannog.server.arrow_bodies import arrow_schema, arrow_table

    with suppress(CrannogError):
        str(arrow_schema(data))
    table = arrow_table(data, RowLimit(LIMIT_ROWS, "a.b.c"), most_bytes=LIMIT_BYTES)
    assert table.num_rows <= LIMIT_ROWS
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    again = arrow_table(sink.getvalue().to_pybytes(), RowLimit(LIMIT_ROWS, "a.b.c"), most_bytes=10 * LIMIT_BYTES)
    assert again.schema.equals(table.schema)
    assert again.num_rows == table.num_rows
    to_arrow(table, SCHEMA, table="a.b.c", verb="append to")


@target
def table_schema(data: bytes) -> None:
    from crannog.delta.json_schema import from_json_schema
    from crannog.formats.row_bodies import parse_document

    document = parse_document(data, "the body", strict=True)
    if isinstance(document, dict):
        assert isinstance(from_json_schema(document), pa.Schema)


@target
def build_events(data: bytes) -> None:
    from crannog.builds.events import BuildEvent
    from crannog.server.routes.builds import _events

    for event in _events(data, "ndjson" if b"\n" in data else "json"):
        assert BuildEvent.from_dict(json.loads(event.as_json())) == event


@target
def row_keys(data: bytes) -> None:
    from crannog.engine.rows import keys_to_arrow
    from crannog.formats.row_bodies import parse_keys

    texts = data.decode("utf-8", "replace").split("\n")
    for key in (("id",), ("text",), ("day", "price"), ("at",), ("raw",)):
        with suppress(CrannogError):
            keys_to_arrow(parse_keys(texts, SCHEMA, key), SCHEMA, key, table="a.b.c", verb="delete from")


# -- statements and searches -------------------------------------------------------------------------------------


@target
def sql(data: bytes) -> None:
    from crannog.engine.sql.commands import read_command
    from crannog.engine.sql.duckdb_compiler.relations import SourceShape
    from crannog.engine.sql.query_plan import Unsupported, compiled_or_not
    from crannog.engine.sql.statement import parse

    text = data.decode("utf-8", "replace")
    if read_command(text, 2_000) is not None:
        return
    statement = parse(text, 2_000)
    shape = SourceShape(("t", "s.t", "c.s.t"), SCHEMA)
    sources = {ref.start: _Shaped(shape) for ref in statement.tables}
    assert statement.for_spark({ref.start: "x" for ref in statement.tables}).strip()
    outcome = compiled_or_not(statement, sources)  # type: ignore[arg-type]
    if not isinstance(outcome, Unsupported):
        assert isinstance(outcome.schema, pa.Schema)


class _Shaped:
    def __init__(self, shape: Any) -> None:
        self.shape = shape


@target
def trace_filter(data: bytes) -> None:
    from crannog.traces.search.filter_parser import parse_filter
    from crannog.traces.search.filter_sql import condition_sql, prefilter_sql

    found = parse_filter(data.decode("utf-8", "replace"))
    for condition in (condition_sql(found), prefilter_sql(found)):
        _spans_connection().execute(f"EXPLAIN SELECT 1 FROM spans WHERE {condition}")


@cache
def _spans_connection() -> Any:
    import duckdb

    from crannog.traces.span_table import SCHEMA as SPANS

    connection = duckdb.connect(":memory:")
    connection.execute("SET threads = 1")
    connection.register("spans", SPANS.empty_table())
    return connection


@target
def cursors(data: bytes) -> None:
    from crannog.engine.row_pages import Position as RowPosition
    from crannog.engine.row_pages import SortColumn, _decoded, _encoded
    from crannog.engine.rows.values import node_of
    from crannog.traces.search import cursors as traces

    # The signature is no secret: a stranger can sign any content.
    signed = base64.urlsafe_b64encode(traces._signature(data, "d") + data).decode().rstrip("=")
    for cursor in (signed, data.decode("utf-8", "replace")):
        with suppress(CrannogError):
            position = traces.decode(cursor, "d", id_bytes=8)
            assert position is None or traces.decode(traces.encode(position, "d"), "d", id_bytes=8) == position
    for field in SCHEMA:
        order = [SortColumn(node_of(field.name, field), field.name)]
        with suppress(CrannogError):
            found = _decoded(base64.urlsafe_b64encode(data).decode(), "o", order)
            if found.values == found.values:  # NaN is not equal to itself
                again = _decoded(_encoded(RowPosition(found.values, found.equal_before), "o"), "o", order)
                assert again == found


# -- files of a warehouse ----------------------------------------------------------------------------------------


@target
def staged_file(data: bytes) -> None:
    from crannog.protocol.staged_files import decode

    segment = decode(data, path="stage/1.parquet", table_id="table")
    assert segment.rows.num_rows >= 0
    assert all(isinstance(record.batch_id, str) for record in segment.records)


@target
def log_entry(data: bytes) -> None:
    from crannog.delta.log import DeltaLog, torn_entry

    with _empty_table() as (storage, folder):
        place = Path(storage.uri(f"{folder}/_delta_log"))
        first, _, second = data.partition(b"\n\n")
        (place / f"{0:020}.json").write_bytes(first)
        if second:
            (place / f"{1:020}.json").write_bytes(second)
        base = DeltaLog(storage, folder).head()
        assert base.version >= 0
        torn_entry(storage, folder)


@contextmanager
def _empty_table() -> Iterator[tuple[Any, str]]:
    from crannog.storage.local import LocalStorage

    folder = f"c/s/{uuid.uuid4().hex}"
    place = _scratch() / folder
    (place / "_delta_log").mkdir(parents=True)
    (place / "_crannog" / TABLE_ID).mkdir(parents=True)
    (place / "_crannog" / TABLE_ID / "table.json").write_bytes(b"{}")
    try:
        yield LocalStorage(_scratch()), folder
    finally:
        shutil.rmtree(place)


@cache
def _scratch() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="crannog-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


# -- the wire ----------------------------------------------------------------------------------------------------


class _Answers:
    """Answers every request of a connection."""

    def __init__(self) -> None:
        from crannog.server.otlp.http2 import Connection

        self.connection = Connection(self)

    def request_started(self, stream: Any, headers: Any) -> None:
        from crannog.server.otlp.grpc_messages import call_head, is_grpc

        if is_grpc(headers):
            with suppress(CrannogError):
                call_head(headers)

    def body_received(self, stream: Any) -> None:
        from crannog.server.otlp.grpc_messages import check_size

        check_size(stream.body, LIMIT_BYTES)

    def request_ended(self, stream: Any) -> None:
        from crannog.server.otlp.grpc_messages import message_of
        from crannog.server.otlp.http2_frames import header_block

        with suppress(CrannogError):
            message_of(stream.body, "gzip")
        self.connection.respond(stream, header_block([(":status", "200")]), b"done")

    def stream_closed(self, stream: Any) -> None:
        """There is nothing to free."""

    def sent_for(self, pieces: list[bytes]) -> bytes:
        from crannog.server.otlp.http2_frames import Http2Error

        try:
            for piece in pieces:
                self.connection.receive(piece)
        except Http2Error as error:
            return bytes(self.connection.outgoing) + f"{error.code}".encode()
        return bytes(self.connection.outgoing)


@target
def http2(data: bytes) -> None:
    from crannog.server.otlp.http2_frames import PREFACE

    whole, split = _Answers(), _Answers()
    size = 1 + (data[0] if data else 0) % 50
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    assert whole.sent_for([PREFACE + data]) == split.sent_for([PREFACE, *pieces]), "the pieces of a message matter"


@target
def headers(data: bytes) -> None:
    from crannog.names import TableName
    from crannog.server.auth import Scope
    from crannog.server.otlp.http2_frames import content_length
    from crannog.server.otlp.http_app import bearer_of
    from crannog.server.sessions import check_same_origin, session_of
    from crannog.traces.ingest.decode import media_type

    first, _, rest = data.partition(b"\n")
    text = data.decode("latin-1")
    assert isinstance(session_of({b"cookie": data}), str)
    media_type(text)
    assert bearer_of(f"Basic {text}").startswith("Bearer ")
    content_length([(b"content-length", data)])
    for work in (Scope.parse, TableName.parse):
        with suppress(CrannogError):
            assert work(str(work(text))) == work(text)  # type: ignore[operator]
    check_same_origin("POST", {b"origin": first, b"host": rest, b"sec-fetch-site": rest})
