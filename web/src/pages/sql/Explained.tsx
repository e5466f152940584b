/** How a statement is answered, as a picture: the engine and why, and what each table is read from. */

import { useState } from "preact/hooks";
import { explainSql, type Engine, type ExplainedTable } from "../../api/sql";
import { useAnswer } from "../../api/useAnswer";
import { to } from "../../app/router";
import { Badge, Button, Code, EmptyState, Panel, Shown } from "../../components";
import { bytes, count, counted, duration, percent } from "../../format/numbers";

const ENGINES: Record<string, [string, string]> = {
  hot: ["In memory", "A copy of the table that the server holds in memory."],
  local: ["In the server", "The files that are left after pruning, read in the server's process."],
  spark: ["Spark", "The same snapshot, on Spark: for what is large, or has no rule on the fast engines."],
};

export function Explained({ sql, engine }: { sql: string; engine: Engine }) {
  const [analyze, setAnalyze] = useState(false);
  const explanation = useAnswer((signal) => explainSql(sql, engine, analyze, signal), [sql, engine, analyze], {
    when: sql.trim() !== "",
  });
  if (!sql.trim()) {
    return (
      <Panel>
        <EmptyState title="Write a statement to see how it is answered" />
      </Panel>
    );
  }
  return (
    <Shown of={explanation} what="Planning">
      {(found) => {
        const [name, about] = ENGINES[found.engine] ?? [found.engine, ""];
        const analyzed = found.analyzed as { rows: number; elapsed_ms: number } | undefined;
        return (
          <>
            <div class="flow" aria-label="How the statement is answered" role="group">
              <ul class="flow-tables">
                {found.tables.length === 0 && <li class="flow-card">No table is read</li>}
                {found.tables.map((table) => (
                  <TableCard key={table.table} table={table} />
                ))}
              </ul>
              <div class="flow-arrow" aria-hidden="true">
                →
              </div>
              <div class="flow-card flow-engine">
                <div class="flow-title">
                  {name} <Badge>{found.engine}</Badge>
                </div>
                <p>{about}</p>
                <p>
                  <strong>Why:</strong> {found.why}
                </p>
              </div>
              <div class="flow-arrow" aria-hidden="true">
                →
              </div>
              <div class="flow-card flow-result">
                <div class="flow-title">Result</div>
                {analyzed ? (
                  <p>
                    {counted(analyzed.rows, "row")} in {duration(analyzed.elapsed_ms * 1e6)}
                  </p>
                ) : (
                  <Button onClick={() => setAnalyze(true)}>Run it and measure</Button>
                )}
              </div>
            </div>
            <Panel title="Plan of the engine">
              <Code text={found.plan} label="plan" most={20_000} />
            </Panel>
          </>
        );
      }}
    </Shown>
  );
}

function TableCard({ table }: { table: ExplainedTable }) {
  const left = table.files - table.files_read;
  const share = table.files ? table.files_read / table.files : 0;
  return (
    <li class="flow-card">
      <div class="flow-title">
        <a href={to("tables", table.table)}>{table.table}</a>
      </div>
      {table.read_from === "files" ? (
        <>
          <div
            class="files-bar"
            role="img"
            aria-label={`${table.files_read} of ${table.files} files are read`}
            title={`${percent(share)} of the files`}
          >
            <div style={{ width: `${share * 100}%` }} />
          </div>
          <p>
            <strong>
              {count(table.files_read)} of {counted(table.files, "file")}
            </strong>{" "}
            read, {bytes(table.bytes_read)}
          </p>
          {left > 0 && <p>{counted(left, "file")} left out:</p>}
          <ul class="pruned">
            {table.pruned_by.map(([what, number]) => (
              <li key={what}>
                {count(number)} by <code>{what}</code>
              </li>
            ))}
          </ul>
        </>
      ) : (
        <p>
          read from <Badge tone="ok">{table.read_from}</Badge>
        </p>
      )}
      {table.staged_rows > 0 && <p>and {counted(table.staged_rows, "staged row")}</p>}
      {table.version !== null && <p class="hint">version {table.version}</p>}
    </li>
  );
}
