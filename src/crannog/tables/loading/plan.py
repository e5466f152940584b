"""Planning a load: the files are looked through, and their columns brought together with the table's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from crannog.api.spark_types import spark_name
from crannog.api.table import Table
from crannog.delta.schemas import check_key, check_partition_by, user_columns, user_schema
from crannog.errors import CallerError, Conflict
from crannog.tables.loading.columns import Comparison, check, compared, new_schema, together
from crannog.tables.loading.file_parts import FEW, Reader, Survey, Target
from crannog.tables.loading.options import LoadOptions
from crannog.tables.loading.progress import Meter


@dataclass(frozen=True, slots=True)
class Plan:
    """What is loaded, into which columns."""

    readers: Sequence[Reader]
    surveys: Sequence[Survey]
    target: Target
    key: tuple[str, ...]
    comparison: Comparison


class Planning:
    """Looks through the files and settles the columns."""

    def __init__(
        self, name: str, table: Table | None, options: LoadOptions, readers: Sequence[Reader], meter: Meter
    ) -> None:
        self._name, self._table, self._options, self._readers, self._meter = name, table, options, readers, meter

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
            check(self._name, schema, comparison)
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
        suspects = {name for survey in surveys for name in survey.bad_in if name in target.known.names}
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
