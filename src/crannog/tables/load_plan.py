"""Planning a load: the files are looked through, their columns compared with the table's, and the differences settled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from crannog.api.reports import Drift
from crannog.api.result import spark_name
from crannog.api.table import Table
from crannog.delta.schemas import check_key, check_partition_by, difference, user_columns, user_schema
from crannog.errors import CallerError, Conflict, SchemaMismatch
from crannog.formats.json_types import common_type
from crannog.tables.load_options import LoadOptions
from crannog.tables.load_parts import FEW, Meter, Reader, Survey, Target


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
            change, done = "widened", "widened" if options.evolve else aside
            fields = proposed if options.evolve else fields
        else:
            change, done = "incompatible", aside
        found.drift.append(Drift(name, change, spark_name(table.field(name).type), spark_name(kind), done))
    if options.evolve and not options.ignore_extra:
        fields += [pa.field(name, kind) for name, kind in added.items()]
    if fields != list(table):
        found.evolved = pa.schema(fields)
    return found


def check(name: str, found: Comparison) -> None:
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


@dataclass(frozen=True, slots=True)
class Plan:
    """What is loaded, into which columns."""

    readers: Sequence[Reader]
    surveys: Sequence[Survey]
    target: Target
    key: tuple[str, ...]
    comparison: Comparison


@dataclass
class Planning:
    """Looks through the files and settles the columns."""

    _name: str
    _table: Table | None
    _options: LoadOptions
    _readers: Sequence[Reader]
    _meter: Meter

    def plan(self) -> Plan:
        return self._for_new() if self._table is None else self._for_existing(self._table)

    def _survey(self, target: Target) -> list[Survey]:
        self._meter.begin("check")
        found = []
        for reader in self._readers:
            stamp = reader.source.stamp
            found.append(replace(reader.survey(target, self._meter.seen), stamp=stamp))
            self._meter.finished(reader.source.size)
        return found

    def _for_new(self) -> Plan:
        options = self._options
        required, filled = frozenset(options.key), frozenset(options.partition_by)
        given = pa.schema(list(options.types.items()))
        surveys = self._survey(Target(given, required, filled, complete=False))
        columns = together(surveys)
        schema = new_schema(
            {**columns, **{name: kind for name, kind in options.types.items() if name in columns}}, options
        )
        schema = self._checked(schema)
        uneven = any(
            kind is not None and kind != schema.field(name).type
            for survey in surveys
            for name, kind in survey.columns.items()
        )
        if uneven or not all(survey.sure for survey in surveys):
            surveys = self._survey(Target(schema, required, filled))
            # A guess that some value does not bear out is text; a type that was asked for stands.
            # Null keys and empty partitions are what no other type would mend.
            storable_type = {"", *options.types, *options.key, *options.partition_by}
            wrong = {name for survey in surveys for name in survey.bad_in if name not in storable_type}
            if wrong:
                schema = pa.schema(
                    [pa.field(f.name, pa.string(), f.nullable) if f.name in wrong else f for f in schema]
                )
                surveys = self._survey(Target(schema, required, filled))
        return Plan(self._readers, surveys, Target(schema, required, filled), options.key, Comparison())

    def _checked(self, schema: pa.Schema) -> pa.Schema:
        """Raise CallerError, before anything is made, for what no table can have."""
        if self._options.key and self._options.partition_by:
            raise CallerError(f"table {self._name} cannot have both a key and partitions; leave one out")
        schema = check_key(user_schema(schema), self._options.key)
        check_partition_by(schema, self._options.partition_by)
        return schema

    def _for_existing(self, table: Table) -> Plan:
        schema = user_columns(table.schema)
        required = frozenset(field.name for field in schema if not field.nullable)
        partition_by = tuple(table.describe()["partition_by"])
        filled = frozenset(partition_by)
        if self._options.partition_by and partition_by != self._options.partition_by:
            raise Conflict(
                f"table {self._name} exists, partitioned by {list(partition_by)}, asked for {list(self._options.partition_by)}"
            )
        target = Target(schema, required, filled)
        surveys = self._survey(replace(target, known=pa.schema([*schema, *self._requested_columns(schema)])))
        comparison = compared(schema, together(surveys), self._wider(surveys, target), self._options)
        if not self._options.dry_run:
            check(self._name, comparison)
        if comparison.evolved is not None:
            target = Target(comparison.evolved, required, filled)
        if comparison.evolved is not None or not all(survey.sure for survey in surveys):
            surveys = self._survey(target)
        return Plan(self._readers, surveys, target, tuple(table.key), comparison)

    def _requested_columns(self, schema: pa.Schema) -> list[pa.Field]:
        """Return the columns with requested types that are new to the table. Raises Conflict if the table has one with another type."""
        for name, kind in self._options.types.items():
            if name in schema.names and schema.field(name).type != kind:
                have = spark_name(schema.field(name).type)
                raise Conflict(f"table {self._name} exists, its column {name} is {have}, asked for {spark_name(kind)}")
        return [pa.field(name, kind) for name, kind in self._options.types.items() if name not in schema.names]

    def _wider(self, surveys: list[Survey], target: Target) -> dict[str, pa.DataType]:
        """Return the columns whose values do not fit and which type would hold them; those with a few bad rows are left out."""
        known = frozenset(target.known.names)
        suspects = {name for survey in surveys for name in survey.bad_in if name in known}
        if not suspects:
            return {}
        known = pa.schema([field for field in target.known if field.name not in suspects])
        types = together(
            [reader.survey(replace(target, known=known, complete=False), self._meter.seen) for reader in self._readers]
        )
        found = {}
        for name in suspects:
            kind, current = types.get(name), target.known.field(name).type
            widens = kind is not None and (
                (pa.types.is_integer(current) and kind == pa.int64())
                or (current == pa.float32() and kind == pa.float64())
            )
            # A few bad rows are reported one by one, even if no other row has a value there.
            bad = sum(survey.bad_in.get(name, 0) for survey in surveys)
            fits_nowhere = bad > FEW and not any(survey.good_in.get(name) for survey in surveys)
            if kind is not None and kind != current and (widens or (fits_nowhere and name not in target.required)):
                found[name] = kind
        return found
