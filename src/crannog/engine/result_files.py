"""Result files: where the answers of Spark that are sent batch by batch lie, and how those go that nobody sends any more.

An answer has a lease before it has a folder. One without a live lease was left by a process that was killed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from crannog.errors import CrannogError
from crannog.protocol.leases import Lease, live_leases
from crannog.storage.interface import Storage
from crannog.storage.local import TRASH

FOLDER = "_crannog/results"
_LEASES = "_crannog/leases"


def lease_on(storage: Storage, result: str, query_id: str, tables: Sequence[str]) -> Lease:
    """Return the lease of an answer that reads `tables`; enter it before its folder is made."""
    storage.make_folder(_LEASES)
    content = {"kind": "result", "result": result, "query": query_id, "tables": list(tables)}
    return Lease(storage, _lease_path(result), content)


def is_leased(storage: Storage, result: str) -> bool:
    """Tell whether an answer still has its lease: an erasure takes it away."""
    return storage.exists(_lease_path(result))


def remove_abandoned(storage: Storage) -> None:
    """Delete the answers of processes that were killed; a failure leaves them to the next sweep."""
    with suppress(CrannogError, FileNotFoundError):
        # The folders first: an answer has its lease before its folder.
        folders = set(storage.folders(FOLDER))
        for name in folders - {lease.get("result") for lease in live_leases(storage, _LEASES)}:
            storage.delete_folder(f"{FOLDER}/{name}")


def delete_results(storage: Storage, table: str) -> list[str]:
    """Delete the answers that may hold rows of a table, those being sent too; return the files that were there.

    What is in them only their queries know: they may have changed every value.
    """
    folders = set(storage.folders(FOLDER))
    others = {
        lease.get("result")
        for lease in live_leases(storage, _LEASES)
        if "tables" in lease and table not in lease["tables"]
    }
    found = []
    for name in folders - others:
        storage.delete([_lease_path(name)])
        found += [file.path for file in storage.walk(f"{FOLDER}/{name}")]
        storage.delete_folder(f"{FOLDER}/{name}")
    return found


def empty_trash(storage: Storage) -> list[str]:
    """Delete what deletions of folders have left when they were killed; return the files that were there."""
    found = [file.path for file in storage.walk(TRASH)]
    storage.delete(found)
    return found


def _lease_path(result: str) -> str:
    return f"{_LEASES}/result-{result}.json"
