/** SQL: one statement in, an Arrow table out; explained, cancelled, or as a file. */

import type { Table } from "./arrow";
import { post, postRaw, remove } from "./client";

export type Engine = "auto" | "hot" | "local" | "spark";

export interface Statement {
  sql: string;
  engine?: Engine;
  maxRows?: number;
  timeoutS?: number;
}

export interface SqlResult {
  table: Table;
  engine: string;
  why: string;
  truncated: boolean;
  /** What the server took, in milliseconds. */
  elapsedMs: number;
  bytes: number;
}

/** Progress of a statement: running, or receiving its result, with the bytes received. */
export type Progress = { state: "running" } | { state: "receiving"; bytes: number };

const ARROW = "application/vnd.apache.arrow.stream";

export async function runSql(
  statement: Statement,
  queryId: string,
  progress: (progress: Progress) => void,
  signal?: AbortSignal,
): Promise<SqlResult> {
  progress({ state: "running" });
  const response = await postRaw("/api/v1/sql", ARROW, {
    body: {
      sql: statement.sql,
      engine: statement.engine ?? "auto",
      max_rows: statement.maxRows,
      timeout_s: statement.timeoutS,
      query_id: queryId,
    },
    signal,
  });
  const bytes = await received(response, (size) => progress({ state: "receiving", bytes: size }));
  const { readTable } = await import("./arrow");
  const header = (name: string) => decodeURIComponent(response.headers.get(name) ?? "");
  return {
    table: readTable(bytes.buffer as ArrayBuffer),
    engine: header("crannog-engine"),
    why: header("crannog-why"),
    truncated: header("crannog-truncated") === "true",
    elapsedMs: Number(header("crannog-elapsed-ms")),
    bytes: bytes.length,
  };
}

async function received(response: Response, progress: (bytes: number) => void): Promise<Uint8Array> {
  const reader = response.body!.getReader();
  const parts: Uint8Array[] = [];
  let size = 0;
  let reportedAt = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    size += value.length;
    if (performance.now() - reportedAt > 100) {
      reportedAt = performance.now();
      progress(size);
    }
  }
  const whole = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** Ends a statement that runs or waits. Returns false if it had ended already. */
export async function cancelSql(queryId: string): Promise<boolean> {
  try {
    await remove("/api/v1/sql/{query_id}", { path: { query_id: queryId } });
    return true;
  } catch {
    return false;
  }
}

export interface ExplainedTable {
  table: string;
  version: number | null;
  sequence: number;
  read_from: string;
  files: number;
  files_read: number;
  bytes_read: number;
  staged_rows: number;
  /** What left files out, and how many. */
  pruned_by: [string, number][];
}

export interface Explanation {
  engine: string;
  why: string;
  tables: ExplainedTable[];
  plan: string;
  [further: string]: unknown;
}

export function explainSql(sql: string, engine: Engine, analyze: boolean, signal?: AbortSignal): Promise<Explanation> {
  return post("/api/v1/sql/explain", {
    body: { sql, engine, analyze },
    signal,
  }) as Promise<unknown> as Promise<Explanation>;
}

export const EXPORTS = {
  csv: { label: "CSV", media: "text/csv", ending: "csv" },
  parquet: { label: "Parquet", media: "application/vnd.apache.parquet", ending: "parquet" },
  arrow: { label: "Arrow", media: ARROW, ending: "arrows" },
  json: { label: "JSON", media: "application/json", ending: "json" },
  ndjson: { label: "JSON lines", media: "application/x-ndjson", ending: "ndjson" },
} as const;
export type ExportForm = keyof typeof EXPORTS;

/** All rows of a statement as a file, whatever their number. */
export async function exportSql(
  sql: string,
  engine: Engine,
  form: ExportForm,
  progress: (bytes: number) => void,
  signal?: AbortSignal,
): Promise<Blob> {
  const { media } = EXPORTS[form];
  const response = await postRaw("/api/v1/sql/stream", media, { body: { sql, engine }, signal });
  let size = 0;
  const counted = response.body!.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      transform(part, control) {
        size += part.length;
        progress(size);
        control.enqueue(part);
      },
    }),
  );
  return new Response(counted, { headers: { "Content-Type": media } }).blob();
}

/** Offers a file to the browser's downloads. */
export function download(content: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
