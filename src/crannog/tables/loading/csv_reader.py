"""CSV made into rows of a table: whole columns at once, single values only where one must be explained."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from crannog.api.reports import BadRow
from crannog.api.spark_types import spark_name
from crannog.engine.rows.values import Node
from crannog.formats.csv_rows import CsvBlock, CsvFile, LineNumbers, cell_value
from crannog.formats.input_files import Source
from crannog.formats.json_rows import is_calendar
from crannog.formats.text_columns import TextTypeInference, read_column
from crannog.tables.loading.file_parts import (
    FEW,
    Block,
    Fault,
    Reader,
    Seen,
    Survey,
    Target,
    check_filled,
    exact_or_fault,
    first_fault_of_each,
    fitting_names,
    shown_value,
    whole_array,
    with_all_columns,
    without,
)


class CsvReader(Reader):
    """One CSV file; a column that the table has no name for is renamed."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._file = CsvFile(source)
        self._names = fitting_names(self._file.names, source.name)

    def survey(self, target: Target, seen: Seen) -> Survey:
        survey, kinds = self._start(target)
        nodes, lines, place = target.nodes(), LineNumbers(self._file), 0
        for block, data in self._file.blocks_growing():
            if block is None:
                survey, kinds = self._start(target)
                lines, place = LineNumbers(self._file), 0
                continue
            rows = self._named(block)
            for name, found in kinds.items():
                for chunk in rows.column(name).chunks:
                    found.observe(chunk)
            columns, faults = _fit(rows, target, nodes)
            survey.add_good(columns)
            survey.sure = survey.sure and not any(
                _has_empty(rows.column(name)) for name in kinds if name in target.required
            )
            bad = self._explained(block, faults, place, lines if len(survey.first_bad) < FEW else None)
            survey.rows += rows.num_rows - len(faults)
            survey.add_bad([row for row, _ in bad])
            place += rows.num_rows
            seen(data.consumed, rows.num_rows)
        survey.digest = self._file.digest
        for name in self._names.values():
            survey.columns[name] = kinds[name].type if name in kinds else target.known.field(name).type
        return survey

    def _start(self, target: Target) -> tuple[Survey, dict[str, TextTypeInference]]:
        return Survey(renamed=self._renamed), {
            name: TextTypeInference() for name in self._names.values() if name not in target.known.names
        }

    def blocks(self, target: Target, seen: Seen) -> Iterator[Block]:
        nodes, lines, place = target.nodes(), LineNumbers(self._file), 0
        with self.source.open(text=True) as data:
            for block in self._file.blocks(data):
                rows = self._named(block)
                columns, faults = _fit(rows, target, nodes)
                whole = without(with_all_columns(columns, target), faults)
                bad = self._explained(block, faults, place, lines)
                place += rows.num_rows
                seen(data.consumed, rows.num_rows)
                yield Block(whole, bad)

    def _named(self, block: CsvBlock) -> pa.Table:
        return block.rows.rename_columns([self._names[name] for name in block.rows.column_names])

    def _explained(
        self, block: CsvBlock, faults: list[Fault], first: int, lines: LineNumbers | None
    ) -> list[tuple[BadRow, object]]:
        """Return the bad rows of a block in the order of the file; without `lines` their places are left out."""
        found: list[tuple[int, str, str, str, object]] = []
        for fault in faults:
            row = {name: block.rows.column(name)[fault.place].as_py() for name in self._file.names} if lines else None
            found.append(
                (block.numbers.of(first + fault.place), fault.column, shown_value(fault.value), fault.reason, row)
            )
        for ragged in block.ragged:
            reason = f"the row has {ragged.found} value{'s' * (ragged.found != 1)}, the first line names {ragged.wanted} columns"
            found.append((ragged.record, "", shown_value(ragged.text), reason, ragged.text))
        found.sort(key=lambda entry: entry[0])
        return [
            (BadRow(self.source.name, lines.of(record) if lines else 0, column, value, reason), row)
            for record, column, value, reason, row in found
        ]


def _has_empty(column: pa.ChunkedArray) -> bool:
    """Tell whether a text is empty: in a column that turns out to hold numbers, that is null."""
    return bool(pc.any(pc.equal(column, "")).as_py())


def _fit(rows: pa.Table, target: Target, nodes: dict[str, Node]) -> tuple[pa.Table, list[Fault]]:
    """Return the known columns as values, and the rows that cannot be kept."""
    columns: dict[str, pa.Array] = {}
    faults: list[Fault] = []
    for name in rows.column_names:
        text = whole_array(rows.column(name))
        values = text
        if name in nodes:
            node = nodes[name]
            values, unread = read_column(text, node.type)
            if unread is not None:
                values = _read_one_by_one(text, values, unread, node, target, faults)
            columns[name] = values
        check_filled(values, name, target, faults)
    return pa.table(columns) if columns else rows.select([]), first_fault_of_each(faults)


def _read_one_by_one(
    text: pa.Array, values: pa.Array, unread: pa.Array, node: Node, target: Target, faults: list[Fault]
) -> pa.Array:
    places = pc.indices_nonzero(unread).to_pylist()
    read = []
    for place, given in zip(places, text.filter(unread).to_pylist(), strict=True):
        found = cell_value(given, node.type)
        value, reason = exact_or_fault(found, node, target)
        if reason:
            if found is given and not is_calendar(node.type):
                reason = f"this is no {spark_name(node.type)}"
            faults.append(Fault(place, node.name, given, reason))
        read.append(value)
    if not pa.types.is_nested(node.type):
        return pc.replace_with_mask(values, unread, pa.array(read, node.type))
    whole = values.to_pylist()
    for place, value in zip(places, read, strict=True):
        whole[place] = value
    return pa.array(whole, node.type)
