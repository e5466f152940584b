import type { Table } from "@uwdata/flechette";
import { useMemo, useState } from "preact/hooks";
import { zone } from "../app/preferences";
import { cellText, columnsOf, type ResultColumn } from "../format/cells";
import { zoneName } from "../format/times";
import "./arrow-grid.css";
import { Button } from "./Button";
import { Code } from "./Code";
import { CopyButton } from "./CopyButton";
import { Dialog } from "./Dialog";
import { Grid } from "./Grid";

interface Props {
  label: string;
  table: Table;
  /** Columns that form the key. */
  keys?: readonly string[];
  sort?: string | undefined;
  onSort?: (sort: string) => void;
  height?: string;
  firstNumber?: number;
}

const WIDTHS: Record<ResultColumn["kind"], number> = {
  number: 220,
  text: 190,
  time: 230,
  date: 110,
  boolean: 80,
  binary: 200,
  nested: 240,
};

/** The width of a column: what the first rows and its head need, within bounds. */
function widthOf(table: Table, column: ResultColumn, place: number, isKey: boolean): number {
  let longest = column.name.length + 1 + (isKey ? 5 : 0) + (column.type.length > 24 ? 8 : column.type.length);
  for (let row = 0; row < Math.min(30, table.numRows); row++) {
    longest = Math.max(longest, cellText(table.getChildAt(place), row)?.length ?? 4);
  }
  return Math.max(80, Math.min(WIDTHS[column.kind] * 1.5, longest * 7.6 + 22));
}

/** Rows of Arrow, of any number and all types: nulls differ from empty texts; Enter or two clicks open a cell whole. */
export function ArrowGrid({ label, table, keys = [], sort, onSort, height, firstNumber = 1 }: Props) {
  const [open, setOpen] = useState<{ row: number; column: number } | null>(null);
  const columns = useMemo(() => columnsOf(table), [table]);
  const zoned = zone.value;
  const heads = useMemo(
    () =>
      columns.map((column, place) => ({
        // Names may be repeated in a result: the place tells them apart.
        id: onSort ? column.name : `${place}`,
        title: <ColumnHead column={column} isKey={keys.includes(column.name)} />,
        width: widthOf(table, column, place, keys.includes(column.name)),
        ...(column.kind === "number" ? { align: "right" as const } : {}),
        sortable: onSort !== undefined && column.kind !== "nested",
      })),
    [columns, table, keys, onSort !== undefined, zoned],
  );
  return (
    <>
      <Grid
        label={label}
        columns={heads}
        rows={table.numRows}
        cell={(row, place) => <Cell table={table} row={row} place={place} />}
        sort={sort}
        {...(onSort ? { onSort } : {})}
        onOpen={(row, column) => setOpen({ row, column })}
        opensBy="double click"
        copied={(row, place) => cellText(table.getChildAt(place), row, true) ?? ""}
        {...(height ? { height } : {})}
        firstNumber={firstNumber}
      />
      {open && (
        <CellDialog
          table={table}
          columns={columns}
          row={open.row}
          place={open.column}
          number={firstNumber + open.row}
          onMove={setOpen}
          onClose={() => setOpen(null)}
        />
      )}
    </>
  );
}

function ColumnHead({ column, isKey }: { column: ResultColumn; isKey: boolean }) {
  return (
    <span title={`${column.name}: ${column.type}${isKey ? ", part of the key" : ""}`}>
      {isKey && <span class="key-mark">key</span>}
      {column.name} <span class="column-type">{column.zoned ? `timestamp ${zoneName()}` : column.type}</span>
    </span>
  );
}

function Cell({ table, row, place }: { table: Table; row: number; place: number }) {
  const text = cellText(table.getChildAt(place), row);
  if (text === null) return <span class="cell-null">null</span>;
  if (text === "") return <span class="cell-null">empty text</span>;
  return <>{/[\n\r\t]/.test(text) ? text.replace(/\r?\n/g, "↵").replace(/\t/g, "→") : text}</>;
}

interface DialogProps {
  table: Table;
  columns: readonly ResultColumn[];
  row: number;
  place: number;
  number: number;
  onMove: (to: { row: number; column: number }) => void;
  onClose: () => void;
}

/** One value in full, and the row it is in. */
function CellDialog({ table, columns, row, place, number, onMove, onClose }: DialogProps) {
  const column = columns[place]!;
  const text = cellText(table.getChildAt(place), row, true);
  return (
    <Dialog
      title={`${column.name} of row ${number}`}
      wide
      onClose={onClose}
      actions={
        <>
          <Button disabled={row === 0} onClick={() => onMove({ row: row - 1, column: place })}>
            ← Row before
          </Button>
          <Button disabled={row === table.numRows - 1} onClick={() => onMove({ row: row + 1, column: place })}>
            Next row →
          </Button>
          <CopyButton what="row as JSON" label="Copy row as JSON" text={() => rowAsJson(table, columns, row)} />
        </>
      }
    >
      <p class="hint">{column.type}</p>
      {text === null ? (
        <p class="cell-null">null</p>
      ) : text === "" ? (
        <p class="cell-null">empty text</p>
      ) : (
        <Code text={readable(text, column)} label={`value of ${column.name}`} />
      )}
      <h3 class="row-title">The whole row</h3>
      <dl class="pairs">
        {columns.map((each, index) => (
          <div key={index}>
            <dt>{each.name}</dt>
            <dd>
              <button type="button" class="cell-link" onClick={() => onMove({ row, column: index })}>
                <Cell table={table} row={row} place={index} />
              </button>
            </dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}

const LONGEST_JSON = 500_000;

/** JSON in lines with an indent, so that one can read it; anything else as it is. */
function readable(text: string, column: ResultColumn): string {
  const mayBe = column.kind === "nested" || (column.kind === "text" && /^\s*[[{]/.test(text));
  if (!mayBe || text.length > LONGEST_JSON || /\d{16}/.test(text)) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function rowAsJson(table: Table, columns: readonly ResultColumn[], row: number): string {
  const parts = columns.map((column, place) => {
    const text = cellText(table.getChildAt(place), row, true);
    const plain = column.kind === "boolean" || (column.kind === "number" && !/[NI]/.test(text ?? ""));
    return `  ${JSON.stringify(column.name)}: ${text === null ? "null" : plain ? text : JSON.stringify(text)}`;
  });
  return `{\n${parts.join(",\n")}\n}`;
}
