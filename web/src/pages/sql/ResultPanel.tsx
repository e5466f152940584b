/** What came of a statement: its rows, a chart of them, or how it is answered. */

import { useEffect, useState } from "preact/hooks";
import type { Engine } from "../../api/sql";
import { Badge, Button, EmptyState, ErrorBox, Panel, Progress, Tabs } from "../../components";
import { ArrowGrid } from "../../components/ArrowGrid";
import { bytes, count, counted, duration } from "../../format/numbers";
import { ResultChart } from "./ResultChart";
import { Explained } from "./Explained";
import type { Run } from "./useRuns";

export const VIEWS = ["rows", "chart", "explain"] as const;
export type View = (typeof VIEWS)[number];
const CEILING = 5_000_000;

interface Props {
  run: Run | undefined;
  sql: string;
  engine: Engine;
  view: View;
  setView: (view: View) => void;
  /** Runs it again with more rows. */
  more: (rows: number) => void;
}

export function ResultPanel({ run, sql, engine, view, setView, more }: Props) {
  return (
    <Tabs
      label="Result"
      value={view}
      onChange={setView}
      tabs={[
        { value: "rows", label: run?.result ? `Rows (${count(run.result.table.numRows)})` : "Rows" },
        { value: "chart", label: "Chart" },
        { value: "explain", label: "Explain" },
      ]}
    >
      {view === "explain" ? (
        <Explained sql={sql} engine={engine} />
      ) : (
        <Panel flush>
          <Outcome run={run} view={view} more={more} />
        </Panel>
      )}
    </Tabs>
  );
}

function Outcome({ run, view, more }: { run: Run | undefined; view: View; more: (rows: number) => void }) {
  if (!run) {
    return (
      <EmptyState title="Nothing was run here yet">
        <p>
          Write a statement and press <kbd>Ctrl</kbd> <kbd>Enter</kbd>. What is selected runs alone.
        </p>
      </EmptyState>
    );
  }
  if (run.error) {
    return (
      <div class="outcome">
        <ErrorBox error={run.error} />
      </div>
    );
  }
  if (run.cancelled) {
    return (
      <EmptyState title={`Cancelled after ${duration((run.ms ?? 0) * 1e6)}`}>
        <p>The server ended the statement. Nothing of it runs on.</p>
      </EmptyState>
    );
  }
  if (!run.result) return <Running run={run} />;
  const { result } = run;
  return (
    <>
      <div class="result-line" role="status">
        <strong>{counted(result.table.numRows, "row")}</strong>
        <span>
          in {duration(result.elapsedMs * 1e6)}, {duration((run.ms ?? 0) * 1e6)} until here
        </span>
        <span>{bytes(result.bytes)}</span>
        <Badge title={result.why}>{result.engine}</Badge>
        <span class="hint why">{result.why}</span>
        {result.truncated && (
          <span class="cut">
            <Badge tone="warn">cut: there are more rows</Badge>
            {result.table.numRows < CEILING && (
              <Button onClick={() => more(Math.min(CEILING, Math.max(1_000_000, result.table.numRows * 10)))}>
                Get up to {count(Math.min(CEILING, Math.max(1_000_000, result.table.numRows * 10)))}
              </Button>
            )}
          </span>
        )}
      </div>
      {result.table.numCols === 0 ? (
        <EmptyState title="The result has no columns" />
      ) : view === "chart" ? (
        <ResultChart table={result.table} />
      ) : result.table.numRows === 0 ? (
        <EmptyState title="The result has no rows">
          <p>It has the columns {result.table.names.join(", ")}.</p>
        </EmptyState>
      ) : (
        <ArrowGrid label="Result" table={result.table} height="max(280px, calc(100vh - 500px))" />
      )}
    </>
  );
}

function Running({ run }: { run: Run }) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((before) => before + 1), 100);
    return () => clearInterval(timer);
  }, []);
  const seconds = ((performance.now() - run.since) / 1000).toFixed(1);
  const what =
    run.progress?.state === "receiving" ? `Receiving ${bytes(run.progress.bytes)}` : "The server works on it";
  return (
    <div class="outcome">
      <Progress label={`${what}: ${seconds} s`} />
    </div>
  );
}
