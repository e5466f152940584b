"""What the clients of a chaos run do: every act follows from the seed, the client and its turn, and nothing else.

So the oracle can compute what an act wrote without having seen it, and a run with the same seed does the same acts.

A client owns its rows. In the table without a key each append has new ids. In the table with a key a client has a few
groups of keys, which it changes only together: a reader that finds the keys of a group at different turns has seen a
torn state. An erased group is never written again, so that its text must not occur in any file from then on.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

ROWS, KEYED = "lake.chaos.rows", "lake.chaos.keyed"
SPANS, BUILDS = "crannog.traces.spans", "crannog.builds.build_events"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("writer", pa.string()),
        pa.field("turn", pa.int64()),
        pa.field("size", pa.int64()),
        pa.field("text", pa.string()),
    ]
)
GROUPS = 5
KEYS_PER_GROUP = 3
SPAN_START_NS = 1_760_000_000_000_000_000

WRITES = ("append", "upsert", "delete", "erase", "spans", "build")
MAINTENANCE = ("fold", "compact", "vacuum", "pack", "claim")
_WEIGHTS = {"append": 40, "upsert": 30, "delete": 7, "erase": 1, "spans": 10, "build": 10, "fold": 1, "pack": 1}

# What a client does to reach a failpoint, after a few writes.
ACTS_REACHING = {
    "stage": "append",
    "pack": "pack",
    "rewrite": "fold",
    "clean": "vacuum",
    "vacuum": "vacuum",
    "erase": "erase",
    "control": "claim",
}


@dataclass(frozen=True)
class Act:
    """One act of one client."""

    client: str
    turn: int
    kind: str
    rows: int = 0
    group: str = ""
    remote: bool = False

    @property
    def batch_id(self) -> str:
        return f"{self.client}.{self.turn}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "turn": self.turn,
            "act": self.kind,
            "rows": self.rows,
            "group": self.group,
            "remote": self.remote,
        }

    @classmethod
    def from_dict(cls, client: str, line: dict[str, Any]) -> Act:
        return cls(client, line["turn"], line["act"], line["rows"], line["group"], line["remote"])


def act_of(seed: str, client: str, turn: int, generations: dict[int, int], kind: str | None = None) -> Act:
    """Return what `client` does in its `turn`; `generations` says how often each of its groups was erased."""
    chance = random.Random(f"{seed}/{client}/{turn}")
    chosen = chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
    place = chance.randrange(GROUPS)
    rows, remote = chance.randint(1, 4), chance.random() < 0.2
    kind = kind or chosen
    group = group_name(client, place, generations.get(place, 0)) if kind in ("upsert", "delete", "erase") else ""
    return Act(client, turn, kind, KEYS_PER_GROUP if group else rows, group, remote and kind not in ("pack", "claim"))


def group_name(client: str, place: int, generation: int) -> str:
    """Name a group of keys. The erasure of the group is checked by searching for this text, so it has an end mark."""
    return f"group-{client}-{place}-{generation}-"


def place_of(group: str) -> tuple[int, int]:
    """Return the place of a group and its generation."""
    _, _, place, generation, _ = group.split("-")
    return int(place), int(generation)


def keys_of(group: str) -> list[str]:
    return [f"{group}{number}" for number in range(KEYS_PER_GROUP)]


def row_ids(act: Act) -> list[str]:
    """Return the ids of the rows that an append or an upsert writes."""
    return keys_of(act.group) if act.group else [f"row-{act.batch_id}-{number}" for number in range(act.rows)]


def table_rows(act: Act) -> list[dict[str, Any]]:
    return [
        {"id": name, "writer": act.client, "turn": act.turn, "size": act.rows, "text": text_of(name, act.turn)}
        for name in row_ids(act)
    ]


def text_of(name: str, turn: int) -> str:
    """Return the text of a row: derived from its name and turn, so that a mixed row is noticed."""
    return f"{name} {hashlib.sha256(f'{name}/{turn}'.encode()).hexdigest()[:16]}"


def trace_id(act: Act) -> bytes:
    return hashlib.sha256(f"trace {act.batch_id}".encode()).digest()[:16]


def span_ids(act: Act) -> list[bytes]:
    return [hashlib.sha256(f"span {act.batch_id} {number}".encode()).digest()[:8] for number in range(act.rows)]


def otlp_body(act: Act) -> bytes:
    """Return the spans of an act as an OTLP request."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    attribute = resource.resource.attributes.add()
    attribute.key, attribute.value.string_value = "service.name", act.client
    scope = resource.scope_spans.add()
    for number, span_id in enumerate(span_ids(act)):
        span = scope.spans.add()
        span.trace_id, span.span_id, span.name = trace_id(act), span_id, f"act {act.batch_id}"
        span.start_time_unix_nano = SPAN_START_NS + act.turn * 1_000_000 + number
        span.end_time_unix_nano = span.start_time_unix_nano + 1_000
    return bytes(request.SerializeToString())


def event_ids(act: Act) -> list[str]:
    return [f"event-{act.batch_id}-{number}" for number in range(act.rows)]


def build_events(act: Act) -> list[Any]:
    """Return the build events of an act."""
    from crannog.builds import BuildEvent, PartitionEvent, PartitionStatus

    return [
        BuildEvent(name, SPAN_START_NS + act.turn, act.client, PartitionEvent(f"p/{number}", PartitionStatus.BUILDING))
        for number, name in enumerate(event_ids(act))
    ]
