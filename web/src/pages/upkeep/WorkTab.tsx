import { useMemo } from "preact/hooks";
import { tableHistory, type Version } from "../../api/tables";
import { useAnswer } from "../../api/useAnswer";
import { to } from "../../app/router";
import { Badge, EmptyState, Select, Shown, Table, Time, TimeChart, type Column } from "../../components";
import { count, counted } from "../../format/numbers";

const MOST_TABLES = 30;
const MOST_VERSIONS = 200;
const MOST_ROWS = 300;
const NOT_WORK = /CREATE TABLE/;

interface Row extends Version {
  table: string;
}

async function ask(names: readonly string[], signal: AbortSignal): Promise<Row[]> {
  const all = await Promise.all(
    names.map(async (table) =>
      (await tableHistory(table, MOST_VERSIONS, signal).catch(() => [])).map((version): Row => ({ ...version, table })),
    ),
  );
  const rows = all.flat().filter((row) => !NOT_WORK.test(row.operation));
  return rows.sort((left, right) => Number(right.timestamp) - Number(left.timestamp));
}

interface Props {
  tables: readonly string[];
  table: string;
  onTable: (table: string) => void;
}

/** Folds, compactions and other rewrites over time, of one table or of all. */
export function WorkTab({ tables, table, onTable }: Props) {
  const names = table ? [table] : tables.slice(0, MOST_TABLES);
  const work = useAnswer((signal) => ask(names, signal), [names.join(" ")]);
  return (
    <>
      <div class="upkeep-bar">
        <Select
          label="Table"
          hideLabel
          value={table}
          onChange={onTable}
          options={[["", tables.length > MOST_TABLES ? `The first ${MOST_TABLES} tables` : "All tables"], ...tables]}
        />
      </div>
      <Shown of={work} empty={(rows) => rows.length === 0 && <NoWork />}>
        {(rows) => (
          <>
            <Chart rows={rows} />
            <Table
              label="Work on tables"
              columns={columns}
              rows={rows.slice(0, MOST_ROWS)}
              rowKey={(row) => `${row.table} ${row.version}`}
            />
          </>
        )}
      </Shown>
    </>
  );
}

function NoWork() {
  return (
    <EmptyState title="Nothing has been folded or compacted yet">
      <p>
        A fold writes staged changes into a table. Start one under <a href={to("upkeep")}>Tables</a>, or let the
        scheduler do it when something is due.
      </p>
    </EmptyState>
  );
}

const STEPS_S = [60, 300, 900, 3_600, 6 * 3_600, 86_400, 7 * 86_400];
const BARS = 60;
const whole = (value: number) => count(Math.round(value));

function Chart({ rows }: { rows: readonly Row[] }) {
  const { times, series } = useMemo(() => {
    const at = rows.map((row) => Number(row.timestamp) / 1000);
    const [first, last] = [at[at.length - 1]!, at[0]!];
    const step = STEPS_S.find((each) => (last - first) / each <= BARS) ?? 30 * 86_400;
    const begin = Math.floor(first / step) * step;
    const times = Array.from({ length: Math.floor((last - begin) / step) + 1 }, (_none, index) => begin + index * step);
    const kinds = [...new Set(rows.map((row) => row.operation))].sort();
    const series = kinds.map((kind, index) => {
      const values = times.map(() => 0);
      rows.forEach((row, place) => {
        if (row.operation === kind) values[Math.floor((at[place]! - begin) / step)]!++;
      });
      return { label: kind.toLowerCase(), values, colour: index % 10, bars: kinds.length === 1 };
    });
    return { times, series };
  }, [rows]);
  if (times.length < 2) return null;
  return <TimeChart label="Work on tables over time" times={times} series={series} format={whole} height={150} />;
}

const columns: Column<Row>[] = [
  { id: "when", title: "When", cell: (row) => <Time at={BigInt(row.timestamp) * 1_000_000n} /> },
  { id: "what", title: "What", cell: (row) => <Badge>{row.operation.toLowerCase()}</Badge> },
  {
    id: "table",
    title: "Table",
    cell: (row) => (
      <a class="wraps" href={to("tables", row.table)}>
        {row.table}
      </a>
    ),
  },
  { id: "version", title: "Version", align: "right", wide: true, cell: (row) => count(row.version) },
  { id: "files", title: "Files", wide: true, cell: (row) => files(row) },
];

function files(row: Row): string {
  const metrics = row.operationMetrics ?? {};
  const rows = metrics["numOutputRows"];
  return [
    `${counted(Number(metrics["numAddedFiles"] ?? 0), "file")} written`,
    `${count(Number(metrics["numRemovedFiles"] ?? 0))} replaced`,
    ...(rows ? [counted(Number(rows), "row")] : []),
  ].join(", ");
}
