"""Changes of a table as messages between the processes that commit to it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from crannog.delta.log import Base
from crannog.delta.schemas import fingerprint
from crannog.engine.commit.group import Call
from crannog.protocol.changelog import ChangeLog, Committed
from crannog.protocol.staged_files import Change

_FORMAT = "changes 1"
_LARGEST_BYTES = 16 * 1024


class ChangeMessages:
    """Writes rows as Arrow record batches without their schema, which both processes know by its fingerprint."""

    def __init__(self, log: ChangeLog) -> None:
        self._log = log
        self._schema: tuple[Base, str] | None = None

    def encode(self, calls: Sequence[Call[Change, Committed]]) -> bytes | None:
        base = self._log.last_seen_base()
        listed: list[Any] = []
        bodies: list[bytes] = []
        for call in calls:
            change, rows = call.value, call.value.rows
            if change.bytes > _LARGEST_BYTES or not isinstance(rows, pa.Table) or not _has_types(rows, base):
                return None
            # If the answer is lost, this tells the change from an earlier one with the same batch id.
            change = call.value = replace(change, writer=change.writer or uuid.uuid4().hex)
            [batch] = rows.combine_chunks().to_batches()
            body = batch.serialize().to_pybytes()
            bodies.append(body)
            listed.append([change.batch_id, change.kind, change.bytes, change.actor, change.reason, change.at_us,
                           change.writer, rows.column_names, len(body)])  # fmt: skip
        head = json.dumps([_FORMAT, self._fingerprint(base), listed]).encode()
        return b"\n".join((head, b"".join(bodies)))

    def decode(self, message: bytes) -> list[Change]:
        try:
            head, _, body = message.partition(b"\n")
            version, schema, listed = json.loads(head)
            if version != _FORMAT:
                return []
            base = self._log.last_seen_base()
            if schema != self._fingerprint(base):
                # The sender may have seen the table evolve.
                base = self._log.refresh()[0]
                if schema != self._fingerprint(base):
                    return []
            found, start = [], 0
            for batch_id, kind, size, actor, reason, at_us, writer, names, length in listed:
                columns = pa.schema([base.user_schema.field(name) for name in names])
                batch = pa.ipc.read_record_batch(pa.py_buffer(body[start : start + length]), columns)
                start += length
                rows = pa.Table.from_batches([batch])
                found.append(Change(batch_id, kind, rows, size, actor, reason, at_us, writer))
            return found
        except (ValueError, TypeError, LookupError, pa.ArrowException):
            return []

    def encode_result(self, result: Committed) -> Any:
        return [result.sequence, result.duplicate]

    def decode_result(self, given: Any) -> Committed:
        return Committed(*given)

    def _fingerprint(self, base: Base) -> str:
        if self._schema is None or self._schema[0] is not base:
            self._schema = base, fingerprint(base.schema)
        return self._schema[1]


def _has_types(rows: pa.Table, base: Base) -> bool:
    """Tell whether rows have exactly the table's types, so that they can be read without a schema of their own."""
    wanted = base.user_schema
    return all(field.name in wanted.names and field.type.equals(wanted.field(field.name).type) for field in rows.schema)
