"""The derived tables as tables: made when first needed, and which version of the spans each holds.

The version stands in a property that every commit of a derive sets, so that rows and version change in one step and
two processes that derive at once cannot both commit.
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
    """Return the version of the span table whose spans a derived table holds; 0 before the first derive."""
    return int(base.properties.get(TO_PROPERTY, "0"))


def existing_table(tables: Tables, derived: DerivedTable, spans: OpenTable) -> OpenTable | None:
    """Return a derived table, or None if it has to be made: there is none, of these spans and these definitions.

    Raises Refused if a table of that name is none of ours, or was made by a newer Crannog.
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
            f"{derived.name} is a table, but not one of Crannog's own: it has no property {VERSION_PROPERTY}; drop it or move it away"
        )
    if int(version) > DEFINITIONS_VERSION:
        raise Refused(
            f"{derived.name} has version {version}, this Crannog knows {DEFINITIONS_VERSION}; upgrade Crannog"
        )
    fits = int(version) == DEFINITIONS_VERSION and properties.get(FROM_PROPERTY) == spans.log.table_id
    return table if fits else None


def open_or_create(tables: Tables, derived: DerivedTable, spans: OpenTable) -> OpenTable:
    """Return a derived table, made if need be; one of other spans or older definitions is replaced."""
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
