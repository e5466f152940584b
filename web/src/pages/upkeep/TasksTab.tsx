import { useState } from "preact/hooks";
import { writeJson } from "../../api/json";
import type { TableTask, TableUpkeep } from "../../api/upkeep";
import { to } from "../../app/router";
import { Ago, Badge, Code, Count, EmptyState, Table, type Column } from "../../components";
import { counted, digits } from "../../format/numbers";
import { summary } from "./reports";

interface Row extends TableTask {
  table: string;
}

/** The tasks of the scheduler, those that fail first. */
export function TasksTab({ tables }: { tables: readonly TableUpkeep[] }) {
  const rows = tables.flatMap((table) => table.tasks.map((task): Row => ({ ...task, table: table.name })));
  rows.sort(
    (left, right) => right.failures - left.failures || (left.table + left.kind < right.table + right.kind ? -1 : 1),
  );
  if (!rows.length)
    return (
      <EmptyState title="No task has run yet">
        <p>
          Where a scheduler runs, it folds, compacts and vacuums when something is due: <code>crannog serve</code> runs
          one, <code>crannog maintain</code> is one alone. A job can be started by hand under Tables.
        </p>
      </EmptyState>
    );
  return <Table label="Tasks" columns={columns} rows={rows} rowKey={(row) => `${row.kind}:${row.table}`} />;
}

const columns: Column<Row>[] = [
  {
    id: "task",
    title: "Task",
    cell: (row) => (
      <span class="wraps">
        {row.kind} <a href={to("tables", row.table)}>{row.table}</a>
      </span>
    ),
  },
  {
    id: "state",
    title: "State",
    cell: (row) =>
      row.failures ? (
        <Badge tone="error">failed {counted(row.failures, "time")}</Badge>
      ) : row.status === "processing" ? (
        <Badge tone="running">running</Badge>
      ) : (
        <Badge tone="ok">idle</Badge>
      ),
  },
  { id: "owner", title: "Owner", wide: true, cell: (row) => <span class="wraps">{row.owner ?? "–"}</span> },
  { id: "result", title: "Last result", wide: true, cell: (row) => <Result row={row} /> },
  { id: "last", title: "Ended", align: "right", cell: (row) => <Ago at={row.completed_at ?? row.claimed_at} /> },
  {
    id: "next",
    title: "Next run",
    align: "right",
    cell: (row) => (row.next_run_at ? <Ago at={row.next_run_at} /> : "when due"),
  },
  {
    id: "took",
    title: "Took",
    align: "right",
    wide: true,
    cell: (row) => (row.seconds === null ? <Count value={null} /> : `${digits(row.seconds)} s`),
  },
];

function Result({ row }: { row: Row }) {
  const [open, setOpen] = useState(false);
  if (!row.last_result) return <span class="nothing">–</span>;
  return (
    <>
      <span class="wraps">{summary(row.kind, row.last_result)}</span>{" "}
      <button type="button" class="button quiet copy" aria-expanded={open} onClick={() => setOpen(!open)}>
        JSON
      </button>
      {open && <Code label={`Last result of ${row.kind} ${row.table}`} text={writeJson(row.last_result, 2)} />}
    </>
  );
}
