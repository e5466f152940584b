/** Statements that run, and what came of them: one for each sheet, while the page is open. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { asError, isAbort, type ApiError } from "../../api/errors";
import { cancelSql, runSql, type Progress, type SqlResult, type Statement } from "../../api/sql";
import { addRan } from "./sheets";

export interface Run {
  statement: Statement;
  /** `performance.now()` at its start. */
  since: number;
  progress?: Progress | undefined;
  result?: SqlResult;
  error?: ApiError;
  /** Set while the person waits for its end after pressing cancel. */
  cancelling?: boolean;
  cancelled?: boolean;
  ms?: number;
}

const PATIENCE_MS = 2_000;

interface Live {
  queryId: string;
  control: AbortController;
}

export interface Runs {
  of: (sheet: string) => Run | undefined;
  start: (sheet: string, statement: Statement) => Promise<void>;
  cancel: (sheet: string) => Promise<void>;
}

export function useRuns(): Runs {
  const [runs, setRuns] = useState<ReadonlyMap<string, Run>>(new Map());
  const live = useRef(new Map<string, Live>());
  const set = useCallback((sheet: string, change: (before: Run | undefined) => Run) => {
    setRuns((before) => new Map(before).set(sheet, change(before.get(sheet))));
  }, []);
  // Who leaves the page waits for nothing any more: the server ends what nobody reads.
  useEffect(() => () => live.current.forEach((each) => each.control.abort()), []);

  const start = useCallback(async (sheet: string, statement: Statement) => {
    live.current.get(sheet)?.control.abort();
    const own = { queryId: crypto.randomUUID(), control: new AbortController() };
    live.current.set(sheet, own);
    const since = performance.now();
    set(sheet, () => ({ statement, since, progress: { state: "running" } }));
    const isCurrent = () => live.current.get(sheet) === own;
    const done = (change: Partial<Run>, rows: number | null, engine: string, error: string) => {
      const ms = performance.now() - since;
      addRan({ sql: statement.sql, at: Date.now(), ms, rows, engine, error });
      if (!isCurrent()) return;
      live.current.delete(sheet);
      set(sheet, () => ({ statement, since, ms, ...change }));
    };
    try {
      const tell = (progress: Progress) =>
        isCurrent() && set(sheet, (before) => ({ ...(before ?? { statement, since }), progress }));
      const result = await runSql(statement, own.queryId, tell, own.control.signal);
      done({ result }, result.table.numRows, result.engine, "");
    } catch (thrown) {
      const error = asError(thrown);
      if (isAbort(thrown) || error.code === "cancelled") done({ cancelled: true }, null, "", "cancelled");
      else done({ error }, null, "", error.message);
    }
  }, []);

  const cancel = useCallback(async (sheet: string) => {
    const own = live.current.get(sheet);
    if (!own) return;
    set(sheet, (before) => ({ ...before!, cancelling: true }));
    // The server says when the statement has ended; giving up the request works even if it does not.
    await Promise.race([cancelSql(own.queryId), new Promise((resolve) => setTimeout(resolve, PATIENCE_MS))]);
    own.control.abort();
  }, []);

  return { of: (sheet) => runs.get(sheet), start, cancel };
}
