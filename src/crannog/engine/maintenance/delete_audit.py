"""The audit of applied deletes: actor, reason, time and a keyed hash of the key, never the key itself."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from crannog.engine.open_table import OpenTable
from crannog.storage.interface import Storage

_SECRET = "_crannog/secret"
_NAME = re.compile(r"[0-9a-f-]{36}\.json")


def key_hash(storage: Storage, table_id: str, key: Mapping[str, Any]) -> str:
    """Return the keyed hash of a key: finding its record takes the key and the warehouse's secret."""
    text = json.dumps([table_id, *map(_canonical, key.values())])
    return hmac.new(_secret(storage), text.encode(), hashlib.sha256).hexdigest()


def _canonical(value: Any) -> str:
    """Convert a key's value so that equal values give equal text, whichever engine produced them."""
    if isinstance(value, dt.datetime):
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    return f"{type(value).__name__}:{value!r}"


def _secret(storage: Storage) -> bytes:
    storage.make_folder("_crannog")
    with suppress(FileNotFoundError):
        return storage.read(_SECRET)
    storage.put_if_absent(_SECRET, secrets.token_hex(32).encode(), private=True)
    return storage.read(_SECRET)


def record(table: OpenTable, job: str, tombstones: Sequence[Mapping[str, Any]]) -> None:
    """Record the deletes that a fold is about to apply. The record of a fold that never commits is ignored."""
    if not tombstones:
        return
    storage = table.warehouse.storage
    lines = [
        json.dumps(
            {
                "sequence": entry["sequence"],
                "order": entry["order"],
                "key_hash": key_hash(storage, table.log.table_id, entry["key"]),
                "actor": entry["actor"],
                "reason": entry["reason"],
                "deleted_at": entry["deleted_at"].isoformat(),
                "outcome": entry["outcome"],
                "job": job,
            }
        )
        for entry in tombstones
    ]
    storage.put_if_absent(f"{table.log.own_folder}/audit/{job}.json", "\n".join(lines).encode())


def applied(table: OpenTable) -> list[dict[str, Any]]:
    """List the deletes that folds have applied, oldest first."""
    storage = table.warehouse.storage
    folded = table.log.head().folded
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for name in sorted(filter(_NAME.fullmatch, storage.names(f"{table.log.own_folder}/audit"))):
        for line in storage.read(f"{table.log.own_folder}/audit/{name}").splitlines():
            entry = json.loads(line)
            place = (entry["sequence"], entry.pop("order"))
            if entry["sequence"] <= folded:
                entry["deleted_at"] = dt.datetime.fromisoformat(entry["deleted_at"])
                found[place] = entry
    return [found[place] for place in sorted(found)]
