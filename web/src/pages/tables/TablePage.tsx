/** One table: its columns, rows, statistics, history, files and jobs. */

import { useMemo } from "preact/hooks";
import { may } from "../../api/session";
import { describeTable, tableSchema, type TableDescription } from "../../api/tables";
import { listUpkeep } from "../../api/upkeep";
import { useAnswer } from "../../api/useAnswer";
import { choice, useAddress } from "../../app/address";
import type { PageProps } from "../../app/pages";
import { to } from "../../app/router";
import { useTitle } from "../../app/title";
import { Ago, Badge, CopyButton, Figure, PageHead, Shown, Tabs } from "../../components";
import { columnsOf } from "../../format/cells";
import { bytes, count } from "../../format/numbers";
import { ColumnsTab } from "./ColumnsTab";
import { FilesTab } from "./FilesTab";
import { HistoryTab } from "./HistoryTab";
import { JobsTab } from "./JobsTab";
import { RowsTab } from "./RowsTab";
import { StatisticsTab } from "./StatisticsTab";
import { quotedName } from "../../format/sql";
import "./tables.css";

const TABS = ["rows", "columns", "statistics", "history", "files", "jobs"] as const;
const LABELS: Record<(typeof TABS)[number], string> = {
  rows: "Rows",
  columns: "Columns",
  statistics: "Statistics",
  history: "History",
  files: "Files and changes",
  jobs: "Jobs",
};

export default function TablePage({ params }: PageProps) {
  const name = params.name ?? "";
  const [state, set] = useAddress({ tab: choice(TABS) });
  const described = useAnswer((signal) => describeTable(name, signal), [name], { everyMs: 20_000 });
  const typed = useAnswer((signal) => tableSchema(name, signal), [name, described.data?.version]);
  const columns = useMemo(() => (typed.data ? columnsOf(typed.data) : []), [typed.data]);
  useTitle(name);
  const [catalog = "", schema = ""] = name.split(".");
  return (
    <>
      <PageHead
        title={name}
        above={
          <>
            <a href={to("tables")}>Tables</a> / <a href={to("tables", { q: `${catalog}.` })}>{catalog}</a> /{" "}
            <a href={to("tables", { q: `${catalog}.${schema}.` })}>{schema}</a>
          </>
        }
        actions={
          <>
            <CopyButton text={name} what="name" label="Copy name" />
            <a class="button" href={to("sql", { q: `SELECT *\nFROM ${quotedName(name)}\nLIMIT 100` })}>
              Query
            </a>
            {may("write", name) && catalog !== "crannog" && (
              <a class="button" href={to("load", { table: name })}>
                Load a file
              </a>
            )}
          </>
        }
      />
      <Shown of={described} what={`Looking at ${name}`}>
        {(table) => (
          <>
            <Figures table={table} />
            {table.warnings.map((warning) => (
              <p key={warning}>
                <Badge tone="warn">{warning}</Badge>
              </p>
            ))}
            <Tabs
              label="Parts of the table"
              value={state.tab}
              onChange={(tab) => set({ tab }, { push: true })}
              tabs={TABS.map((tab) => ({ value: tab, label: LABELS[tab] }))}
            >
              {state.tab === "rows" && <RowsTab key={name} table={table} columns={columns} />}
              {state.tab === "columns" && <ColumnsTab table={table} columns={columns} />}
              {state.tab === "statistics" && <StatisticsTab table={table} columns={columns} />}
              {state.tab === "history" && <HistoryTab table={table} />}
              {state.tab === "files" && <FilesTab table={table} />}
              {state.tab === "jobs" && <JobsTab table={table} done={described.reload} />}
            </Tabs>
          </>
        )}
      </Shown>
    </>
  );
}

function Figures({ table }: { table: TableDescription }) {
  const upkeep = useAnswer(
    (signal) => listUpkeep({ name: [table.name] }, signal),
    [table.name, table.sequence, table.version],
  );
  return (
    <div class="figures">
      <Figure label="Rows" value={count(table.rows)} note="visible now" />
      <Figure
        label="Size"
        value={bytes(table.bytes + table.staged_bytes)}
        note={`${count(table.files)} files, ${count(table.staged_files)} staged`}
      />
      <Figure
        label="To fold"
        value={count(table.staged_rows)}
        note={Number(table.staged_rows) ? `${bytes(table.staged_bytes)} of staged changes` : "everything is folded"}
      />
      <Figure
        label="Version"
        value={count(table.version)}
        note={
          <>
            changed <Ago at={upkeep.data?.[0]?.changed_at} />
          </>
        }
      />
      <Figure label="Key" value={table.key.length ? table.key.join(", ") : "none"} />
    </div>
  );
}
