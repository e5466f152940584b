import type { JobName } from "../../api/tables";
import { may } from "../../api/session";
import { storedBytes, type TableUpkeep } from "../../api/upkeep";
import { to } from "../../app/router";
import { Badge, Button, Bytes, Count, Duration, Table, type Column } from "../../components";
import { bytes } from "../../format/numbers";

interface Props {
  tables: readonly TableUpkeep[];
  sort: string;
  onSort: (sort: string) => void;
  onJob: (job: JobName, table: string) => void;
}

const LATE_S = 3_600;
const KEYS: Record<string, (table: TableUpkeep) => number | string> = {
  name: (table) => table.name,
  staged: (table) => Number(table.staged_rows ?? 0),
  lag: (table) => table.lag_s ?? 0,
  files: (table) => table.base_files ?? 0,
  stored: storedBytes,
};

/** Backlog, lag and storage of each table, and the jobs that one may start. */
export function TablesTab({ tables, sort, onSort, onJob }: Props) {
  const key = KEYS[sort.replace(/^-/, "")] ?? KEYS["lag"]!;
  const sign = sort.startsWith("-") ? -1 : 1;
  const rows = [...tables].sort((left, right) => {
    const [one, other] = [key(left), key(right)];
    return one === other ? (left.name < right.name ? -1 : 1) : sign * (one < other ? -1 : 1);
  });
  return (
    <>
      <Table
        label="Tables"
        columns={columns(onJob, Math.max(1, ...tables.map(storedBytes)))}
        rows={rows}
        rowKey={(table) => table.name}
        sort={sort}
        onSort={onSort}
      />
      <Legend />
    </>
  );
}

function columns(onJob: Props["onJob"], most: number): Column<TableUpkeep>[] {
  return [
    {
      id: "name",
      title: "Table",
      sortable: true,
      cell: (table) => (
        <>
          <a class="wraps" href={to("tables", table.name)}>
            {table.name}
          </a>
          {table.error && (
            <p class="wraps">
              <Badge tone="error">unreadable</Badge> {table.error}
            </p>
          )}
        </>
      ),
    },
    {
      id: "staged",
      title: "Not folded",
      align: "right",
      sortable: true,
      wide: true,
      cell: (table) => (table.staged_rows ? <Count value={table.staged_rows} /> : <span class="nothing">0</span>),
    },
    {
      id: "lag",
      title: "Lag",
      align: "right",
      sortable: true,
      cell: (table) =>
        !table.lag_s ? (
          <span class="nothing">–</span>
        ) : table.lag_s > LATE_S ? (
          <Badge tone="warn">
            <Duration ns={Math.round(table.lag_s * 1e9)} />
          </Badge>
        ) : (
          <Duration ns={Math.round(table.lag_s * 1e9)} />
        ),
    },
    {
      id: "files",
      title: "Files",
      align: "right",
      sortable: true,
      wide: true,
      cell: (table) => <Count value={table.base_files} />,
    },
    {
      id: "stored",
      title: "Storage",
      align: "right",
      sortable: true,
      wide: true,
      cell: (table) => <Stored table={table} most={most} />,
    },
    {
      id: "do",
      title: "",
      align: "right",
      cell: (table) => (
        <Button
          aria-label={`Start a job on ${table.name}`}
          because={may("write", table.name) ? undefined : "Your token needs write or admin for this"}
          onClick={() => onJob("fold", table.name)}
        >
          Start…
        </Button>
      ),
    },
  ];
}

const PARTS = [
  ["base_bytes", "base", "series-0"],
  ["stage_bytes", "staged", "series-1"],
  ["log_bytes", "log", "series-2"],
  ["other_bytes", "other", "series-7"],
  ["pending_bytes", "pending deletion", "series-3"],
] as const;

function Stored({ table, most }: { table: TableUpkeep; most: number }) {
  const { storage } = table;
  if (!storage) return <span class="nothing">–</span>;
  const title = PARTS.map(([field, name]) => `${name}: ${bytes(storage[field])}`).join("\n");
  return (
    <span class="stored" title={title}>
      <Bytes value={storedBytes(table)} />
      <span class="stored-bar" role="img" aria-label={title.replace(/\n/g, ", ")}>
        {PARTS.map(([field, , colour]) => (
          <span key={field} style={{ width: `${(storage[field] / most) * 100}%`, background: `var(--${colour})` }} />
        ))}
      </span>
    </span>
  );
}

/** What the colours of the bars are. */
function Legend() {
  return (
    <p class="stored-legend hint" aria-hidden="true">
      {PARTS.map(([field, name, colour]) => (
        <span key={field}>
          <span class="swatch" style={{ background: `var(--${colour})` }} />
          {name}
        </span>
      ))}
    </p>
  );
}
