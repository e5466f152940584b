/** The one box that finds anything by its name. */

import { get, type QueryOf } from "./client";

export interface FoundName {
  kind: "table" | "service" | "operation" | "trace" | "build";
  name: string;
  /** Of an operation. */
  service?: string;
  /** Of a build. */
  status?: string;
}

export function findNames(query: QueryOf<"GET /api/v1/search">, signal?: AbortSignal): Promise<FoundName[]> {
  return get("/api/v1/search", { query, signal }) as Promise<unknown> as Promise<FoundName[]>;
}
