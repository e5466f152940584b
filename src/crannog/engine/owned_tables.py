"""Tables that a part of Crannog owns: that part alone makes, changes and drops them; everybody else reads them.

The rule holds at every entry point, because `Lake` and `Table`, which all of them call, check it here; the owners work
on the engine's tables, below the check. Reading, SQL, `describe`, `history`, the cache, `fold`, `compact` and `vacuum`
are allowed on any table, since they leave its rows as they are.

A table is owned if it carries its owner's property, whatever its name (a build log may be any table), or if it is one
of the system's. The catalog `crannog` is reserved: nobody else makes a table there. A user's table that was made there
by an earlier version carries no such property and stays the user's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from crannog.errors import Refused
from crannog.names import OWN_CATALOG, TableName


@dataclass(frozen=True, slots=True, eq=False)
class Owner:
    """A part of Crannog that has tables: a schema of the own catalog, and properties that its tables carry."""

    name: str
    schema: str
    properties: tuple[str, ...]
    instead: str
    """What to call for any change that has no advice of its own."""
    advice: Mapping[str, str] = field(default_factory=dict)


BUILDS = Owner(
    "the build log",
    "builds",
    ("crannog.builds.schemaVersion",),
    "append events through the build log: crannog.builds.open_log(uri).append_events, or POST /api/v1/builds/events",
    {
        **dict.fromkeys(
            ("delete", "erase", "expire"),
            "use prune, wipe_build or remove_events of the build log, or `crannog builds prune`",
        ),
        "drop": "use prune to empty it; to remove it, stop what uses it and delete its folder",
    },
)
TRACES = Owner(
    "the trace store",
    "traces",
    ("crannog.spansVersion", "crannog.derivedVersion"),
    "send spans by OTLP, or use lake.traces.write_otlp; what is derived from them follows by itself",
    {
        "delete": "use lake.traces.erase, or `crannog traces erase`",
        "erase": "use lake.traces.erase, or `crannog traces erase`",
        "expire": "use lake.traces.expire, or `crannog traces expire`",
        "drop": "use lake.traces.expire to remove spans by age; to remove all, stop what uses them and delete the folder",
    },
)
SYSTEM = Owner(
    "the server",
    "system",
    (),
    "it records what callers did, so none of them changes it; audit_days says how long it is kept",
)
OWNERS = (BUILDS, TRACES, SYSTEM)
_SAID = {
    "append": "append to",
    "upsert": "upsert into",
    "delete": "delete from",
    "erase": "erase from",
    "expire": "expire rows of",
}


def is_system(name: TableName) -> bool:
    """Whether a table is one of the server's own, which tell what everybody did."""
    return (name.catalog.lower(), name.schema.lower()) == (OWN_CATALOG, SYSTEM.schema)


def is_reserved(name: TableName) -> bool:
    """Whether a name is in the catalog where Crannog alone makes tables."""
    return name.catalog.lower() == OWN_CATALOG


def owner_of(name: TableName, properties: Mapping[str, str] | None) -> Owner | None:
    """Return who owns a table with these properties; None if a user does. Without properties, the name alone tells.

    Case does not count in names: on some file systems, and for Spark, names that differ by it are one.
    """
    if properties is not None:
        marked = next((owner for owner in OWNERS if any(mark in properties for mark in owner.properties)), None)
        return marked or (SYSTEM if is_system(name) else None)
    if not is_reserved(name):
        return None
    return next((owner for owner in OWNERS if owner.schema == name.schema.lower()), None)


def check_change(change: str, name: TableName, properties: Mapping[str, str] | None) -> None:
    """Raise Refused, which says what to call instead, if a table is not the caller's to change."""
    owner = owner_of(name, properties)
    if owner is not None:
        advice = owner.advice.get(change, owner.instead)
        raise Refused(
            f"cannot {_SAID.get(change, change)} {name}: this table belongs to {owner.name}, which alone changes it; {advice}"
        )


def check_create(name: TableName, owner: Owner | None = None) -> None:
    """Raise Refused if a name is in the reserved catalog, unless its schema there is that of `owner`, who asks."""
    if not is_reserved(name) or (owner is not None and (name.catalog, name.schema) == (OWN_CATALOG, owner.schema)):
        return
    taken = owner_of(name, None)
    if taken is not None and taken is not owner:
        raise Refused(
            f"cannot create {name}: this schema belongs to {taken.name}, which alone makes tables there; {taken.instead}"
        )
    raise Refused(
        f"cannot create {name}: the catalog {OWN_CATALOG} is reserved for Crannog's own tables; choose another catalog"
    )
