import type { TableTask, TableUpkeep } from "../../api/upkeep";
import { to } from "../../app/router";
import { Ago, Badge, Panel } from "../../components";
import { count } from "../../format/numbers";

const LATE_S = 3_600;
const MANY_ROWS = 1_000_000;

/** Upkeep that needs somebody: tasks that fail, tables whose changes wait long. Nothing is shown if all is well. */
export function AttentionPanel({ upkeep }: { upkeep: readonly TableUpkeep[] }) {
  const failing = upkeep.flatMap((table) => table.tasks.filter(isFailing).map((task) => ({ table, task })));
  const broken = upkeep.filter((table) => table.error);
  const late = upkeep.filter((table) => table.lag_s > LATE_S || table.staged_rows > MANY_ROWS);
  if (failing.length + broken.length + late.length === 0) return null;
  return (
    <Panel title="Needs attention" actions={<a href={to("upkeep")}>Upkeep</a>}>
      <ul class="attention">
        {failing.map(({ table, task }) => (
          <li key={table.name + task.kind}>
            <Badge tone="error">{task.kind} fails</Badge> <a href={to("tables", table.name)}>{table.name}</a>
            {errorOf(task) && <>: {errorOf(task)}</>} <Ago at={task.completed_at} />
          </li>
        ))}
        {broken.map((table) => (
          <li key={table.name}>
            <Badge tone="error">unreadable</Badge> <a href={to("tables", table.name)}>{table.name}</a>: {table.error}
          </li>
        ))}
        {late.map((table) => (
          <li key={table.name}>
            <Badge tone="warn">not folded</Badge> <a href={to("tables", table.name)}>{table.name}</a>:{" "}
            {count(table.staged_rows)} rows wait, the oldest since <Ago at={table.oldest_staged_at} />
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function errorOf(task: TableTask): string | undefined {
  const error = task.last_result?.["error"];
  return error === undefined ? undefined : typeof error === "string" ? error : JSON.stringify(error);
}

function isFailing(task: TableTask): boolean {
  return task.failures > 0 || errorOf(task) !== undefined;
}
