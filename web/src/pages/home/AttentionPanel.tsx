import type { TableStorage } from "../../api/tables";
import { listTasks, resultOf, type Task } from "../../api/upkeep";
import { useAnswer } from "../../api/useAnswer";
import { to } from "../../app/router";
import { Ago, Badge, Panel } from "../../components";
import { count } from "../../format/numbers";
import { nowNs, nsOf } from "../../format/times";

const EVERY_MS = 15_000;
const LATE_NS = 3_600_000_000_000n;
const MANY_ROWS = 1_000_000;

/** Upkeep that needs somebody: tasks that fail, tables whose changes wait long. Nothing is shown if all is well. */
export function AttentionPanel({ storage }: { storage: readonly TableStorage[] }) {
  const tasks = useAnswer(listTasks, [], { everyMs: EVERY_MS });
  const failing = (tasks.data ?? []).filter((task) => task.failures > 0 || "error" in resultOf(task));
  const broken = storage.filter((table) => table.error);
  const late = storage.filter(isLate);
  if (failing.length + broken.length + late.length === 0) return null;
  return (
    <Panel title="Needs attention" actions={<a href={to("upkeep")}>Upkeep</a>}>
      <ul class="attention">
        {failing.map((task) => (
          <Failing key={task.task_name} task={task} />
        ))}
        {broken.map((table) => (
          <li key={table.name}>
            <Badge tone="error">unreadable</Badge> <a href={to("tables", table.name)}>{table.name}</a>: {table.error}
          </li>
        ))}
        {late.map((table) => (
          <li key={table.name}>
            <Badge tone="warn">not folded</Badge> <a href={to("tables", table.name)}>{table.name}</a>:{" "}
            {count(table.staged_rows)} rows wait, the oldest since <Ago at={table.staged_since} />
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function isLate(table: TableStorage): boolean {
  if (table.staged_since === null || table.staged_since === undefined) return false;
  return table.staged_rows > MANY_ROWS || nowNs() - nsOf(table.staged_since) > LATE_NS;
}

function Failing({ task }: { task: Task }) {
  const [kind, table = ""] = task.task_name.split(/:(.*)/);
  const { error } = resultOf(task);
  return (
    <li>
      <Badge tone="error">{kind} fails</Badge> <a href={to("tables", table)}>{table}</a>
      {error !== undefined && <>: {typeof error === "string" ? error : JSON.stringify(error)}</>}{" "}
      {task.completed_at && <Ago at={task.completed_at} />}
    </li>
  );
}
