/** Upkeep: what waits in each table, what the tasks did, work over time, storage, and tables in memory. */

import { listUpkeep, storedBytes } from "../../api/upkeep";
import type { JobName } from "../../api/tables";
import { useAnswer } from "../../api/useAnswer";
import { choice, text, useAddress } from "../../app/address";
import { to } from "../../app/router";
import { EmptyState, Figure, PageHead, Panel, Shown, Tabs } from "../../components";
import { bytes, count, duration } from "../../format/numbers";
import { JobDialog } from "./JobDialog";
import { MemoryTab } from "./MemoryTab";
import { TablesTab } from "./TablesTab";
import { TasksTab } from "./TasksTab";
import { WorkTab } from "./WorkTab";
import "./upkeep.css";

const VIEWS = ["tables", "tasks", "work", "memory"] as const;
const LABELS = { tables: "Tables", tasks: "Tasks", work: "Over time", memory: "In memory" };
const JOBS: readonly ("" | JobName)[] = ["", "fold", "compact", "vacuum"];
const EVERY_MS = 15_000;
const LATE_S = 3_600;

export default function UpkeepPage() {
  const [state, set] = useAddress({
    view: choice(VIEWS),
    sort: text("-lag"),
    table: text(),
    job: choice(JOBS),
    of: text(),
  });
  const upkeep = useAnswer((signal) => listUpkeep({ storage: true }, signal), [], { everyMs: EVERY_MS });
  const tables = upkeep.data ?? [];
  const staged = tables.reduce((sum, table) => sum + Number(table.staged_rows ?? 0), 0);
  const lag = Math.max(0, ...tables.map((table) => table.lag_s ?? 0));
  const failing = tables.flatMap((table) => table.tasks).filter((task) => task.failures > 0).length;
  const held = tables.reduce((sum, table) => sum + storedBytes(table), 0);
  const pending = tables.reduce((sum, table) => sum + (table.storage?.pending_bytes ?? 0), 0);
  return (
    <>
      <PageHead title="Upkeep" actions={<a href={to("audit")}>Audit</a>} />
      {upkeep.data && (
        <div class="figures">
          <Figure label="Rows not folded" value={count(staged)} />
          <Figure
            label="Longest lag"
            value={lag ? duration(lag * 1e9) : "none"}
            note="the oldest change that waits for a fold"
            tone={lag > LATE_S ? "warn" : undefined}
          />
          <Figure
            label="Failing tasks"
            value={failing ? `✕ ${count(failing)}` : "0"}
            tone={failing ? "error" : undefined}
            href={to("upkeep", { view: "tasks" })}
          />
          <Figure label="Storage" value={bytes(held)} note={`${bytes(pending)} pending deletion`} />
        </div>
      )}
      <Tabs
        label="Views of upkeep"
        value={state.view}
        onChange={(view) => set({ view }, { push: true })}
        tabs={VIEWS.map((view) => ({ value: view, label: LABELS[view] }))}
      >
        {state.view === "memory" ? (
          <MemoryTab tables={tables.map((table) => table.name)} />
        ) : (
          <Panel flush>
            <Shown of={upkeep} empty={(found) => found.length === 0 && <NoTables />}>
              {(found) =>
                state.view === "tables" ? (
                  <TablesTab
                    tables={found}
                    sort={state.sort}
                    onSort={(sort) => set({ sort }, { push: true })}
                    onJob={(job, of) => set({ job, of }, { push: true })}
                  />
                ) : state.view === "tasks" ? (
                  <TasksTab tables={found} />
                ) : (
                  <WorkTab
                    tables={found.map((table) => table.name)}
                    table={state.table}
                    onTable={(table) => set({ table }, { push: true })}
                  />
                )
              }
            </Shown>
          </Panel>
        )}
      </Tabs>
      {state.job && state.of && (
        <JobDialog
          key={`${state.job} ${state.of}`}
          job={state.job}
          table={state.of}
          upkeep={tables.find((table) => table.name === state.of)}
          onJob={(job) => set({ job })}
          onClose={() => {
            set({ job: "", of: "" }, { push: true });
            upkeep.reload();
          }}
        />
      )}
    </>
  );
}

function NoTables() {
  return (
    <EmptyState title="There are no tables yet">
      <p>
        <a href={to("load")}>Load a file</a>, or write rows; what waits to be folded shows here.
      </p>
    </EmptyState>
  );
}
