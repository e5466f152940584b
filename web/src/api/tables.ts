/** Tables: what there is, what is known about each, their rows page by page, and the jobs on them. */

import { get, getArrow, getRaw, postLines, type AnswerOf, type QueryOf } from "./client";
import { ApiError } from "./errors";
import type { Table } from "./arrow";

export interface TableDescription {
  name: string;
  version: number;
  rows: number | bigint;
  base_rows: number | bigint;
  staged_rows: number | bigint;
  staged_files: number;
  staged_bytes: number;
  sequence: number;
  folded_sequence: number;
  files: number;
  bytes: number;
  key: string[];
  partition_by: string[];
  cluster_by: string[];
  columns: { name: string; type: string; nullable: boolean }[];
  created_at: string;
  properties: Record<string, string>;
  warnings: string[];
}

export async function listTables(system = false, signal?: AbortSignal): Promise<string[]> {
  const found = (await get("/api/v1/tables", { query: { system }, signal })) as { name: string }[];
  return found.map((table) => table.name);
}

export function describeTable(name: string, signal?: AbortSignal): Promise<TableDescription> {
  return get("/api/v1/tables/{name}", { path: { name }, signal }) as Promise<unknown> as Promise<TableDescription>;
}

/** The columns of a table with their exact types, as a table without rows. */
export function tableSchema(name: string, signal?: AbortSignal): Promise<Table> {
  return getArrow("/api/v1/tables/{name}/schema", { path: { name }, signal });
}

export interface RowPage {
  rows: Table;
  next: string | null;
  previous: string | null;
}

const ARROW = "application/vnd.apache.arrow.stream";

/** Some rows in the order of the key or of a column, and the cursors to go on with. */
export async function pageRows(
  name: string,
  query: QueryOf<"GET /api/v1/tables/{name}/rows">,
  signal?: AbortSignal,
): Promise<RowPage> {
  const response = await getRaw("/api/v1/tables/{name}/rows", ARROW, { path: { name }, query, signal });
  const { readTable } = await import("./arrow");
  return {
    rows: readTable(await response.arrayBuffer()),
    next: response.headers.get("crannog-next-cursor"),
    previous: response.headers.get("crannog-previous-cursor"),
  };
}

export type Facets = AnswerOf<"GET /api/v1/tables/{name}/facets">;
export type ColumnFacets = Facets["columns"][number];

export function tableFacets(
  name: string,
  query: QueryOf<"GET /api/v1/tables/{name}/facets">,
  signal?: AbortSignal,
): Promise<Facets> {
  return get("/api/v1/tables/{name}/facets", { path: { name }, query, signal });
}

export interface Version {
  version: number;
  timestamp: number | bigint;
  operation: string;
  operationParameters?: Record<string, unknown>;
  operationMetrics?: Record<string, string>;
  engineInfo?: string;
  userMetadata?: string;
}

export function tableHistory(name: string, limit: number, signal?: AbortSignal): Promise<Version[]> {
  return get("/api/v1/tables/{name}/history", {
    path: { name },
    query: { limit },
    signal,
  }) as Promise<unknown> as Promise<Version[]>;
}

export interface Tombstone {
  key: Record<string, unknown>;
  actor: string;
  reason: string;
  deleted_at: string;
  outcome: string;
  sequence: number;
}

export function tableTombstones(name: string, signal?: AbortSignal): Promise<Tombstone[]> {
  return get("/api/v1/tables/{name}/tombstones", { path: { name }, signal }) as Promise<unknown> as Promise<
    Tombstone[]
  >;
}

export type JobName = "fold" | "compact" | "vacuum";
export type JobReport = Record<string, unknown>;

interface JobLine {
  progress?: { step: string; share: number };
  result?: JobReport;
  error?: { code: string; message: string; retry_after_s: number | null };
}

/** Runs a job on a table to its end, and tells how far it is. */
export async function runJob(
  name: string,
  job: JobName,
  options: { dryRun?: boolean; retentionHours?: number | undefined },
  progress: (step: string, share: number) => void,
  signal?: AbortSignal,
): Promise<JobReport> {
  const path = { name };
  const lines =
    job === "fold"
      ? postLines("/api/v1/tables/{name}/fold", { path, signal })
      : job === "compact"
        ? postLines("/api/v1/tables/{name}/compact", { path, body: { dry_run: options.dryRun ?? false }, signal })
        : postLines("/api/v1/tables/{name}/vacuum", {
            path,
            body: { dry_run: options.dryRun ?? false, retention_hours: options.retentionHours },
            signal,
          });
  return lastOf(lines, progress);
}

/** Follows the lines of a job; returns its result, or throws its error. */
export async function lastOf(
  lines: AsyncGenerator<unknown>,
  progress: (step: string, share: number) => void,
): Promise<JobReport> {
  for await (const each of lines) {
    const line = each as JobLine;
    if (line.progress) progress(line.progress.step, line.progress.share);
    if (line.error) throw new ApiError(line.error.code, line.error.message, 0, line.error.retry_after_s);
    if (line.result) return line.result;
  }
  throw new ApiError("cut_off", "The server ended the answer before the job was done. Look at its log.", 0);
}
