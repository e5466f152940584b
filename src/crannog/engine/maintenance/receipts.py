"""The receipts of erasures, kept in the warehouse: one file for each table, together under the id of the erasure.

They have counts and keyed hashes, never a key.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from crannog.api.arguments import checked_erasure_id
from crannog.api.reports import ErasureReceipt
from crannog.errors import NotFound
from crannog.formats.json_values import to_plain_json
from crannog.storage.interface import Storage

FOLDER = "_crannog/receipts"


def kept(storage: Storage, receipt: ErasureReceipt, erasure_id: str | None) -> ErasureReceipt:
    """Keep a receipt under the id of its erasure, or a new one; return it with that id."""
    receipt = replace(receipt, erasure_id=checked_erasure_id(erasure_id) or uuid.uuid4().hex)
    storage.make_folder(f"{FOLDER}/{receipt.erasure_id}")
    # The time first, so that the names are in the order of the erasure.
    name = f"{receipt.erased_at:%Y%m%dT%H%M%S%f}-{uuid.uuid4().hex[:8]}.json"
    content = json.dumps(to_plain_json(receipt), separators=(",", ":")).encode()
    storage.put_if_absent(f"{FOLDER}/{receipt.erasure_id}/{name}", content)
    return receipt


def receipt_of(storage: Storage, erasure_id: str) -> dict[str, Any]:
    """Return what an erasure did in all tables. Raises NotFound if there is no such erasure."""
    parts = _parts(storage, checked_erasure_id(erasure_id) or "-")
    if not parts:
        raise NotFound(f"there is no receipt of an erasure {erasure_id}; GET /api/v1/receipts lists them")
    return summed(erasure_id, parts)


def receipts(storage: Storage, limit: int) -> list[dict[str, Any]]:
    """Return the newest erasures."""
    found = [(part, summed(part, parts)) for part in storage.folders(FOLDER) if (parts := _parts(storage, part))]
    return [entry for _, entry in sorted(found, key=lambda pair: pair[1]["erased_at"], reverse=True)[:limit]]


def summed(erasure_id: str, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return one receipt for the receipts of several tables."""
    return {
        "erasure_id": erasure_id,
        "actor": parts[0]["actor"],
        "reason": parts[0]["reason"],
        "erased_at": parts[-1]["erased_at"],
        "tables": [part["table"] for part in parts],
        "keys": sum(part["keys"] for part in parts),
        "rows_erased": sum(part["rows_erased"] for part in parts),
        "files_deleted": sum(part["files_deleted"] for part in parts),
        "found_after": sum(place["after"] for part in parts for place in part["places"]),
        "receipts": list(parts),
    }


def _parts(storage: Storage, erasure_id: str) -> list[dict[str, Any]]:
    folder = f"{FOLDER}/{erasure_id}"
    found = []
    for name in sorted(storage.names(folder)):
        with suppress(FileNotFoundError, ValueError):
            found.append(json.loads(storage.read(f"{folder}/{name}")))
    return found
