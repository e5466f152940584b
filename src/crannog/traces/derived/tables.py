"""Opens and creates derived tables, and reads which version of the spans they have.

Each commit of a derive sets the version as a table property, so rows and version change together, and of two concurrent
derives only one can commit.
"""

from __future__ import annotations

from crannog.delta.log import Base
from crannog.engine.open_table import OpenTable
from crannog.engine.owned_tables import TRACES
from crannog.engine.tables import Tables
from crannog.errors import NotFound, Refused
from crannog.traces.derived.definitions import DerivedTable

FROM_PROPERTY, TO_PROPERTY = "crannog.derivedFrom", "crannog.derivedTo"
VERSION_PROPERTY, DEFINITIONS_VERSION = TRACES.properties[1], 1


def derived_version(base: Base) -> int:
    """Return the version of the span table that a derived table is up to date with; 0 before the first derive."""
    return int(base.properties.get(TO_PROPERTY, "0"))


def existing_table(tables: Tables, derived: DerivedTable, spans: OpenTable) -> OpenTable | None:
    """Return a derived table, or None if none exists for this span table and these definitions.

    Raises Refused if a table of that name is not Crannog's, or was created by a newer version.
    """
    try:
        table = tables.open(derived.name)
        properties = table.log.head().properties
    except NotFound:
        tables.forget(derived.name)
        return None
    version = properties.get(VERSION_PROPERTY)
    if version is None:
        raise Refused(
            f"{derived.name} was not created by Crannog: it has no property {VERSION_PROPERTY}; drop or move it"
        )
    if int(version) > DEFINITIONS_VERSION:
        raise Refused(
            f"{derived.name} has version {version}, this Crannog supports {DEFINITIONS_VERSION}; upgrade Crannog"
        )
    fits = int(version) == DEFINITIONS_VERSION and properties.get(FROM_PROPERTY) == spans.log.table_id
    return table if fits else None


def open_or_create(tables: Tables, derived: DerivedTable, spans: OpenTable) -> OpenTable:
    """Open or create a derived table. Replaces a table of another span table or of older definitions."""
    table = existing_table(tables, derived, spans)
    if table is not None:
        return table
    try:
        tables.drop(derived.name)
    except NotFound:
        pass
    tables.create(
        derived.name,
        derived.columns,
        partition_by=["partition_date"],
        cluster_by=derived.cluster_by,
        bloom=derived.bloom,
        if_exists="ok",
        properties={VERSION_PROPERTY: str(DEFINITIONS_VERSION), FROM_PROPERTY: spans.log.table_id, TO_PROPERTY: "0"},
    )
    return tables.open(derived.name)
