"""Which columns the files have together, how they differ from the table's, and what is to be done about it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from crannog.api.load_report import Drift
from crannog.api.spark_types import spark_name
from crannog.delta.schemas import difference
from crannog.errors import CallerError, SchemaMismatch
from crannog.formats.json_types import common_type
from crannog.tables.loading.file_parts import Survey
from crannog.tables.loading.options import LoadOptions


def together(surveys: Sequence[Survey]) -> dict[str, pa.DataType | None]:
    """Return the columns of all files, in the order they come; a type that holds what every file has."""
    found: dict[str, pa.DataType | None] = {}
    for survey in surveys:
        for name, kind in survey.columns.items():
            before = found.get(name)
            found[name] = kind if before is None else before if kind is None else common_type(before, kind)
    return found


def new_schema(columns: dict[str, pa.DataType | None], options: LoadOptions) -> pa.Schema:
    """Return the schema of a table made for these columns: all nullable but the key's; text where no value tells."""
    missing = [name for name in (*options.key, *options.types) if name not in columns]
    if missing:
        raise CallerError(f"the files have no column {', '.join(missing)}; they have {', '.join(columns) or 'none'}")
    if not columns:
        raise CallerError("the files have no columns to make a table of")
    return pa.schema(
        [pa.field(name, kind or pa.string(), nullable=name not in options.key) for name, kind in columns.items()]
    )


@dataclass
class Comparison:
    """How the files differ from the table, and the schema to bring the table to (None: as it is)."""

    drift: list[Drift] = field(default_factory=list)
    evolved: pa.Schema | None = None


def compared(
    table: pa.Schema, columns: dict[str, pa.DataType | None], wider: dict[str, pa.DataType], options: LoadOptions
) -> Comparison:
    """Compare the files with a table; SchemaMismatch for what neither fits nor may be changed.

    `wider` are the table's columns with values that do not fit, and the types those would need.
    """
    found = Comparison()
    added = {name: kind or pa.string() for name, kind in columns.items() if name not in table.names}
    for name, kind in added.items():
        done = "left out" if options.ignore_extra else "added, nullable" if options.evolve else ""
        found.drift.append(Drift(name, "added", "", spark_name(kind), done))
    for column in table:
        if column.name not in columns:
            done = "null in the new rows" if column.nullable else ""
            found.drift.append(Drift(column.name, "removed", spark_name(column.type), "", done))
    fields = list(table)
    aside = "" if options.most_bad == 0 else "rows put aside"
    for name, kind in wider.items():
        place = table.get_field_index(name)
        proposed = [*fields[:place], fields[place].with_type(kind), *fields[place + 1 :]]
        if difference(table, pa.schema(proposed)).is_evolution:
            found.drift.append(
                Drift(
                    name,
                    "widened",
                    spark_name(table.field(name).type),
                    spark_name(kind),
                    "widened" if options.evolve else aside,
                )
            )
            if options.evolve:
                fields = proposed
        else:
            found.drift.append(Drift(name, "incompatible", spark_name(table.field(name).type), spark_name(kind), aside))
    if options.evolve and not options.ignore_extra:
        fields += [pa.field(name, kind) for name, kind in added.items()]
    if fields != list(table):
        found.evolved = pa.schema(fields)
    return found


def check(name: str, table: pa.Schema, found: Comparison) -> None:
    """Raise SchemaMismatch if the load cannot go on with these differences."""
    open_ones = [drift for drift in found.drift if not drift.done]
    faults = []
    if added := [drift.column for drift in open_ones if drift.change == "added"]:
        faults.append(
            f"the files have {', '.join(added)}, the table has no such column{'s' * (len(added) > 1)}:"
            " set the option evolve to add them, or ignore_extra to leave them out"
        )
    for drift in open_ones:
        if drift.change == "removed":
            faults.append(f"column {drift.column} is {drift.in_table} not null, the files do not have it")
        elif drift.change == "widened":
            faults.append(
                f"column {drift.column} is {drift.in_table}, the files need {drift.in_files}: set the option evolve to widen it"
            )
        elif drift.change == "incompatible":
            faults.append(f"column {drift.column} is {drift.in_table}, the files have {drift.in_files}")
    if faults:
        raise SchemaMismatch(f"cannot load into {name}: {'; '.join(faults)}. Nothing was kept")
