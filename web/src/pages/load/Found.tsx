/** What was found in a file: its columns with their types, how they differ from the table, bad rows, and the first rows. */

import { writeJson } from "../../api/json";
import type { LoadReport } from "../../api/load";
import { Badge, Panel, Select, Table, type Column } from "../../components";
import { bytes, count, counted } from "../../format/numbers";

const TYPES = ["boolean", "int", "bigint", "double", "decimal(38,10)", "string", "date", "timestamp"];

interface Props {
  report: LoadReport;
  exists: boolean;
  keys: readonly string[];
  types: Record<string, string>;
  setKeys: (keys: string[]) => void;
  setType: (column: string, type: string) => void;
}

export function Found({ report, exists, keys, types, setKeys, setType }: Props) {
  const file = report.files[0];
  const oldNames = new Map(Object.entries(report.renamed).map(([old, now]) => [now, old]));
  const own = report.columns.filter((column) => !column.name.startsWith("_"));
  const columns: Column<LoadReport["columns"][number]>[] = [
    {
      id: "name",
      title: "Column",
      cell: (column) => (
        <>
          <span class="mono">{column.name}</span>{" "}
          {oldNames.has(column.name) && <span class="hint">in the file: {oldNames.get(column.name)}</span>}
        </>
      ),
    },
    {
      id: "type",
      title: "Type",
      cell: (column) =>
        exists ? (
          <span class="mono">{column.type}</span>
        ) : (
          <Select
            label={`Type of ${column.name}`}
            hideLabel
            value={types[column.name] ?? column.type}
            onChange={(type) => setType(column.name, type)}
            options={[...new Set([column.type, ...TYPES])]}
          />
        ),
    },
    {
      id: "key",
      title: "Key",
      cell: (column) =>
        exists ? (
          report.key.includes(column.name) && <Badge>key</Badge>
        ) : (
          <input
            type="checkbox"
            aria-label={`${column.name} is part of the key`}
            checked={keys.includes(column.name)}
            onChange={(event) =>
              setKeys(
                event.currentTarget.checked ? [...keys, column.name] : keys.filter((each) => each !== column.name),
              )
            }
          />
        ),
    },
    {
      id: "example",
      title: "First values",
      wide: true,
      cell: (column) => (
        <span class="hint breaks">
          {report.first_rows
            .slice(0, 3)
            .map((row) => valueText(row[column.name]))
            .join(" · ")}
        </span>
      ),
    },
  ];
  return (
    <>
      <Panel
        flush
        title={`Found: ${counted(report.rows, "row")} of ${own.length} columns${file ? `, ${file.format}, ${bytes(file.bytes)}` : ""}`}
      >
        <Table label="Columns of the file" columns={columns} rows={own} rowKey={(column) => column.name} />
        {!exists && (
          <p class="hint load-note">
            {keys.length
              ? "Rows of the same key replace each other, also in later loads."
              : "Without a key rows are only added, and cannot be replaced or deleted one by one."}
          </p>
        )}
      </Panel>
      {report.drift.length > 0 && (
        <Panel title="Differences from the table" flush>
          <Table
            label="Differences from the table"
            columns={DRIFT}
            rows={report.drift}
            rowKey={(drift) => drift.column}
          />
        </Panel>
      )}
      {report.bad_rows > 0 && (
        <Panel title={`${count(report.bad_rows)} bad ${report.bad_rows === 1 ? "row" : "rows"}`} flush>
          <Table label="Bad rows" columns={BAD} rows={report.first_bad} rowKey={(_bad, place) => place} />
          {report.bad_rows > report.first_bad.length && (
            <p class="hint load-note">The first {report.first_bad.length} of them.</p>
          )}
        </Panel>
      )}
    </>
  );
}

const DRIFT: Column<LoadReport["drift"][number]>[] = [
  { id: "column", title: "Column", cell: (drift) => <span class="mono">{drift.column}</span> },
  { id: "change", title: "Difference", cell: (drift) => drift.change },
  { id: "table", title: "In the table", wide: true, cell: (drift) => drift.in_table || "–" },
  { id: "file", title: "In the file", wide: true, cell: (drift) => drift.in_files || "–" },
  { id: "done", title: "What happens", cell: (drift) => drift.done || <Badge tone="error">not settled</Badge> },
];

const BAD: Column<LoadReport["first_bad"][number]>[] = [
  { id: "line", title: "Line", cell: (bad) => count(bad.line) },
  { id: "column", title: "Column", cell: (bad) => <span class="mono">{bad.column || "–"}</span> },
  { id: "value", title: "Value", cell: (bad) => <span class="mono breaks">{bad.value || "–"}</span> },
  { id: "reason", title: "What is wrong", cell: (bad) => bad.reason },
];

function valueText(value: unknown): string {
  if (value === null || value === undefined) return "null";
  const text = typeof value === "string" ? value || "empty text" : writeJson(value);
  return text.length > 40 ? `${text.slice(0, 40)}…` : text;
}
