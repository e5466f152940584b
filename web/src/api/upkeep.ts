/** Upkeep: what each table holds, what is to do for it, and what its tasks did. */

import { get, put, remove, type QueryOf } from "./client";

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
  /** Bytes by what they are for, if it was asked for. */
  storage?: TableStorage | null;
  error?: string;
}

export interface TableStorage {
  base_bytes: number;
  stage_bytes: number;
  log_bytes: number;
  other_bytes: number;
  /** Of no current version: they go with a vacuum after the retention. */
  pending_bytes: number;
  pending_files: number;
}

export function listUpkeep(query: QueryOf<"GET /api/v1/upkeep">, signal?: AbortSignal): Promise<TableUpkeep[]> {
  return get("/api/v1/upkeep", { query, signal }) as Promise<unknown> as Promise<TableUpkeep[]>;
}

/** A table that is held in memory, or should be. */
export interface HotTable {
  name: string;
  rows: number;
  bytes: number;
  hits: number;
  misses: number;
  last_access: number;
  state: string;
  pinned: boolean;
  error: string | null;
}

export interface Memory {
  tables: HotTable[];
  bytes: number;
  limit_bytes: number;
  hits: number;
  misses: number;
}

export function getMemory(signal?: AbortSignal): Promise<Memory> {
  return get("/api/v1/cache", { signal }) as Promise<unknown> as Promise<Memory>;
}

export async function pin(name: string): Promise<void> {
  await put("/api/v1/cache/{name}", { path: { name } });
}

export async function evict(name: string): Promise<void> {
  await remove("/api/v1/cache/{name}", { path: { name } });
}

/** All bytes of a table's files; 0 if its storage was not asked for. */
export function storedBytes({ storage }: TableUpkeep): number {
  if (!storage) return 0;
  return storage.base_bytes + storage.stage_bytes + storage.log_bytes + storage.other_bytes + storage.pending_bytes;
}
