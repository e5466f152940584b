/** Traces: what completes a search, and what many spans have in common. */

import { get, type QueryOf } from "./client";

/** The spans that a question is about. */
export interface SpanSelection {
  service?: string | undefined;
  operation?: string | undefined;
  where?: string | undefined;
  start?: string | undefined;
  end?: string | undefined;
}

export interface CompletedValue {
  value: string | number | bigint | boolean;
  count: number;
}

export function complete(
  query: QueryOf<"GET /api/v1/traces/complete">,
  signal?: AbortSignal,
): Promise<CompletedValue[]> {
  return get("/api/v1/traces/complete", { query, signal }) as Promise<unknown> as Promise<CompletedValue[]>;
}

/** Calls from one service to another. */
export interface Dependency {
  parent: string;
  child: string;
  calls: number;
  errors: number;
}

export function dependencies(query: QueryOf<"GET /api/v1/dependencies">, signal?: AbortSignal): Promise<Dependency[]> {
  return get("/api/v1/dependencies", { query, signal }) as Promise<unknown> as Promise<Dependency[]>;
}
