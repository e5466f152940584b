/** Tables: what there is, and what is known about each. */

import { get } from "./client";

export interface TableDescription {
  name: string;
  version: number;
  rows: number | bigint;
  base_rows: number | bigint;
  staged_rows: number | bigint;
  staged_files: number;
  staged_bytes: number;
  files: number;
  bytes: number;
  key: string[];
  partition_by: string[];
  cluster_by: string[];
  columns: { name: string; type: string; nullable: boolean }[];
  created_at: string;
}

export async function listTables(system = false, signal?: AbortSignal): Promise<string[]> {
  const found = (await get("/api/v1/tables", { query: { system }, signal })) as { name: string }[];
  return found.map((table) => table.name);
}

export function describeTable(name: string, signal?: AbortSignal): Promise<TableDescription> {
  return get("/api/v1/tables/{name}", { path: { name }, signal }) as Promise<unknown> as Promise<TableDescription>;
}
