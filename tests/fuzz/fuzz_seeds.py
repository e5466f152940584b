"""Valid inputs from which the fuzzer starts, for each target."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import pyarrow as pa
import zstandard

from fuzz_targets import SCHEMA, TABLE_ID

_ROW: dict[str, Any] = {
    "id": 1,
    "small": -3,
    "text": "häus",
    "ratio": 0.5,
    "price": "12.345",
    "yes": True,
    "day": "2026-11-17",
    "at": "2026-11-17T12:00:00.000001Z",
    "raw": "AAEC",
    "list": [1, None],
    "inner": {"a": "x", "b": 1.5},
    "map": {"k": 7},
}
_SPAN = {
    "traceId": "0102030405060708090a0b0c0d0e0f10",
    "spanId": "0102030405060708",
    "name": "GET /",
    "kind": 2,
    "startTimeUnixNano": "1760000000000000000",
    "endTimeUnixNano": "1760000000000001000",
    "attributes": [
        {"key": "a", "value": {"stringValue": "x"}},
        {"key": "b", "value": {"arrayValue": {"values": [{"intValue": "7"}, {"doubleValue": 1.5}]}}},
        {"key": "c", "value": {"kvlistValue": {"values": [{"key": "d", "value": {"bytesValue": "AAE="}}]}}},
        {"key": "gen_ai.usage.input_tokens", "value": {"intValue": 3}},
        {"key": "llm.input_messages.0.message.content", "value": {"stringValue": "hello"}},
    ],
    "events": [{"timeUnixNano": "1760000000000000500", "name": "e", "attributes": []}],
    "links": [{"traceId": "0102030405060708090a0b0c0d0e0f10", "spanId": "0102030405060709"}],
    "status": {"code": 2, "message": "no"},
}
_ZIPKIN = {
    "traceId": "0102030405060708090a0b0c0d0e0f10",
    "id": "0102030405060708",
    "parentId": "0102030405060709",
    "kind": "SERVER",
    "name": "get",
    "timestamp": 1_760_000_000_000_000,
    "duration": 17,
    "localEndpoint": {"serviceName": "web", "ipv4": "10.0.0.1", "port": 80},
    "annotations": [{"timestamp": 1_760_000_000_000_001, "value": "x"}],
    "tags": {"error": "yes", "http.path": "/"},
    "shared": True,
}
_EVENT = {
    "event_id": "e1",
    "timestamp": 5,
    "build_request_id": "b1",
    "event_type": "partition",
    "partition_event": {"partition_ref": "p/1", "status_code": 3, "status_name": "PARTITION_BUILDING", "message": ""},
}
_HOSTILE = (
    b"",
    b"\0",
    b"[" * 1_400,
    b'{"a":' * 700,
    b"(" * 1_400,
    b"\xff\xfe",
    b"1" * 1_400,
    b"[1e999999999]",
    b'"\\ud800"',
)
_STATEMENTS = (
    "SELECT id, count(*) FROM t WHERE text LIKE 'a%' AND ratio > 1.5 GROUP BY id HAVING count(*) > 1 ORDER BY 1 LIMIT 3",
    "WITH a AS (SELECT * FROM c.s.t) SELECT a.id, b.text FROM a JOIN t b ON a.id = b.id WHERE a.day = DATE '2026-01-01'",
    "SELECT sum(ratio) OVER (PARTITION BY day ORDER BY at ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t",
    "SELECT explode(list), inner.a, map['k'] FROM t LATERAL VIEW explode(list) x AS y",
    "VALUES (1, 'a'), (2, NULL) UNION ALL SELECT id, text FROM t VERSION AS OF 3",
    "SELECT CASE WHEN yes THEN cast(price AS string) ELSE x'00' END FROM t /*+ BROADCAST(t) */ -- end",
    "EXPLAIN SELECT `id` FROM `t` WHERE at BETWEEN now() - INTERVAL 1 DAY AND now()",
    "SHOW TABLES IN c.s LIKE 'a*'",
    "DESCRIBE c.s.t",
)
_FILTERS = (
    'service = "web" and duration > 10ms and not (status = error or name =~ "^GET .*")',
    'span.http.method in ("PUT", "POST") or resource.k8s.pod.name exists',
    'text ~ "a b" and kind != server and http.status_code >= 500',
    'span.a = "x\\n" and attributes.b >= 1.5e3',
)
_ENTRY = {
    "protocol": {"minReaderVersion": 1, "minWriterVersion": 2},
    "metaData": {
        "id": TABLE_ID,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(
            {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": False, "metadata": {}}]}
        ),
        "partitionColumns": [],
        "configuration": {"crannog.formatVersion": "1", "crannog.key": '["id"]'},
        "createdTime": 1,
    },
}
_ADD = {
    "add": {
        "path": "data/a/0/part-0.parquet",
        "partitionValues": {},
        "size": 10,
        "modificationTime": 1,
        "dataChange": True,
        "stats": '{"numRecords":1}',
    }
}


def seeds(name: str) -> list[bytes]:
    """Return the seeds of a target, and texts that every reader should refuse."""
    return [*_SEEDS[name](), *_HOSTILE]


def _documents(*documents: Any) -> list[bytes]:
    return [json.dumps(document).encode() for document in documents]


def _otlp() -> Any:
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "web"}}]},
                "scopeSpans": [{"scope": {"name": "lib", "version": "1"}, "spans": [_SPAN]}],
            }
        ]
    }


def _protobuf() -> list[bytes]:
    from crannog.traces.ingest.decode import parse_otlp_json

    return [parse_otlp_json(json.dumps(_otlp()).encode()).SerializeToString()]


def _compressed() -> list[bytes]:
    text = b"some rows " * 20
    return [
        b"\0" + gzip.compress(text),
        b"\x02" + zlib.compress(text),
        b"\x02" + zlib.compress(text)[2:-4],
        b"\x03" + zstandard.compress(text),
    ]


def _csv() -> list[bytes]:
    return [
        b'id,text,ratio,day,yes\n1,a,0.5,2026-01-01,true\n2,"b\n""c",,,\n',
        b'text,id,price,at,raw\r\n"x",7,1.250,2026-01-01T00:00:00Z,AA==\r\n',
    ]


def _arrow() -> list[bytes]:
    dictionary = pa.array(["a", "b", "a"]).dictionary_encode()
    table = pa.table({"id": pa.array([1, 2, 3]), "text": dictionary, "list": [[1], [], None]})
    made = []
    for options in (None, "zstd", "lz4"):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=options)) as writer:
            writer.write_table(table)
        made.append(sink.getvalue().to_pybytes())
    number = pa.Array.from_buffers(pa.decimal128(12, 2**31 - 1), 1, [None, pa.py_buffer(bytes(16))])
    empty = pa.schema([("id", pa.struct([("a", pa.sparse_union([]))]))])
    # Arrow ends the process when it converts these.
    for schema, batches in ((pa.schema([("price", number.type)]), [number]), (empty, [])):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(pa.record_batch([batch], schema=schema))
        made.append(sink.getvalue().to_pybytes())
    return [*made, SCHEMA.serialize().to_pybytes()]


def _schemas() -> list[bytes]:
    definition = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "text": {"type": ["string", "null"], "format": "date-time"},
            "list": {"type": "array", "items": {"$ref": "#/$defs/x"}},
            "map": {"type": "object", "additionalProperties": {"type": "number"}},
            "any": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
        },
        "required": ["id"],
        "$defs": {"x": {"type": "string", "contentEncoding": "base64"}},
    }
    return _documents(definition)


def _staged() -> list[bytes]:
    from crannog.protocol.staged_files import Change, build_segment, encode

    made = []
    for count in (1, 40):
        rows = pa.table({"id": list(range(count)), "text": ["x"] * count})
        change = Change("batch", "append", rows, 100, at_us=5)
        segment = build_segment([change], 1, "writer", {"id": pa.int64(), "text": pa.string()})
        made.append(encode(segment, table_id="table", schema_version="0"))
    return made


def _log() -> list[bytes]:
    first = b"\n".join(json.dumps({name: value}).encode() for name, value in _ENTRY.items())
    return [first, first + b"\n\n" + json.dumps(_ADD).encode(), first + b"\n" + json.dumps(_ADD).encode()]


def _http2() -> list[bytes]:
    from crannog.server.otlp import http2_frames as h2

    request = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/opentelemetry.proto.collector.trace.v1.TraceService/Export"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ]
    start = h2.settings([(h2.INITIAL_WINDOW_SIZE, 100)])
    head = h2.frame(h2.HEADERS, h2.END_HEADERS, 1, h2.header_block(request))
    body = h2.frame(h2.DATA, h2.END_STREAM, 1, b"\0\0\0\0\x02ab")
    more = h2.number_frame(h2.WINDOW_UPDATE, 0, 7) + h2.frame(h2.PING, 0, 0, b"12345678")
    reset = h2.number_frame(h2.RST_STREAM, 1, 8) + h2.goaway(0, 0)
    return [start + head + body, start + more + head + reset]


def _cursors() -> list[bytes]:
    return [
        b'[1,5,"0102030405060708",0,null]',
        b'["o",[5],0]',
        b'["o",["2026-11-17"],1]',
        b'["o",[{"$float":"NaN"}],0]',
    ]


_SEEDS = {
    "otlp_protobuf": _protobuf,
    "otlp_json": lambda: _documents(_otlp()),
    "zipkin": lambda: _documents([_ZIPKIN]),
    "compressed": _compressed,
    "json_rows": lambda: _documents([_ROW], [{"id": 1}, {"id": 2, "text": None}]),
    "ndjson_rows": lambda: [b"\n".join(_documents(_ROW, {"id": 2}))],
    "csv_rows": _csv,
    "arrow_rows": _arrow,
    "table_schema": _schemas,
    "build_events": lambda: _documents(_EVENT, [_EVENT]),
    "row_keys": lambda: [b'1\n"a"\n{"day": "2026-01-01", "price": 1.5}', b"2026-01-01T00:00:00Z"],
    "sql": lambda: [text.encode() for text in _STATEMENTS],
    "trace_filter": lambda: [text.encode() for text in _FILTERS],
    "cursors": _cursors,
    "staged_file": _staged,
    "log_entry": _log,
    "http2": _http2,
    "headers": lambda: [b"crannog_session=abc; other=1", b"read:a.b", b"http://localhost\nlocalhost", b"17"],
}
