/** Upkeep: what each table holds, what is to do for it, and what its tasks did. */

import { get, type QueryOf } from "./client";

/** A task as `tasks` of a table has it. */
export interface TableTask {
  kind: string;
  status: string;
  owner: string | null;
  failures: number;
  claimed_at: string | null;
  completed_at: string | null;
  next_run_at: string | null;
  seconds: number | null;
  last_result: Record<string, unknown> | null;
}

/** One table; `error` instead of the amounts if it cannot be read. */
export interface TableUpkeep {
  name: string;
  version: number;
  rows: number | bigint;
  changed_at: string;
  base_rows: number | bigint;
  base_files: number;
  base_bytes: number;
  staged_rows: number;
  staged_bytes: number;
  staged_files: number;
  oldest_staged_at: string | null;
  lag_s: number;
  tasks: TableTask[];
  error?: string;
}

export function listUpkeep(query: QueryOf<"GET /api/v1/upkeep">, signal?: AbortSignal): Promise<TableUpkeep[]> {
  return get("/api/v1/upkeep", { query, signal }) as Promise<unknown> as Promise<TableUpkeep[]>;
}
