"""Result files: where Spark's results are stored while they are streamed, and how abandoned ones are deleted.

A result has a lease before it has a folder. A result without a live lease was left by a killed process.
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
    """Return the lease of a result that reads `tables`; enter it before creating the result's folder."""
    storage.make_folder(_LEASES)
    content = {"kind": "result", "result": result, "query": query_id, "tables": list(tables)}
    return Lease(storage, _lease_path(result), content)


def is_leased(storage: Storage, result: str) -> bool:
    """Tell whether a result still has its lease: an erasure deletes it."""
    return storage.exists(_lease_path(result))


def remove_abandoned(storage: Storage) -> None:
    """Delete the results of killed processes; after a failure the next call tries again."""
    with suppress(CrannogError, FileNotFoundError):
        # List the folders first: a result has its lease before its folder.
        folders = set(storage.folders(FOLDER))
        for name in folders - {lease.get("result") for lease in live_leases(storage, _LEASES)}:
            storage.delete_folder(f"{FOLDER}/{name}")


def delete_results(storage: Storage, table: str) -> list[str]:
    """Delete the results that may have rows of a table, also those being streamed; return their files.

    They cannot be searched for keys: a query may have changed every value.
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
    """Delete what killed folder deletions have left; return the files."""
    found = [file.path for file in storage.walk(TRASH)]
    storage.delete(found)
    return found


def _lease_path(result: str) -> str:
    return f"{_LEASES}/result-{result}.json"
