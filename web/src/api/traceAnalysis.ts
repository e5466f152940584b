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

/** Spans of one time and one duration, both by their place in the heat map. */
export interface HeatmapCell {
  time: number;
  duration: number;
  count: number;
  errors: number;
  /** Examples, the longest first. */
  trace_ids: string[];
}

/** Counts by start and duration: time `i` begins at `start_ns + i * step_ns`, duration `i` at `durations_ns[i]`. */
export interface Heatmap {
  start_ns: bigint;
  end_ns: bigint;
  step_ns: number | bigint;
  times: number;
  durations_ns: (number | bigint)[];
  spans: number;
  errors: number;
  cells: HeatmapCell[];
}

export function heatmap(query: QueryOf<"GET /api/v1/traces/heatmap">, signal?: AbortSignal): Promise<Heatmap> {
  return get("/api/v1/traces/heatmap", { query, signal }) as Promise<unknown> as Promise<Heatmap>;
}

/** How the values of a field or an attribute differ between selected spans and the others. */
export interface KeyDifference {
  level: "field" | "span" | "resource";
  key: string;
  /** The largest difference between the shares of a value, 0 to 1. */
  difference: number;
  distinct: number;
  missing_selected: number;
  missing_others: number;
  values: { value: unknown; selected: number; others: number }[];
}

export interface Differences {
  selected: number;
  others: number;
  sampled_selected: number;
  sampled_others: number;
  keys: KeyDifference[];
}

export function differences(
  query: QueryOf<"GET /api/v1/traces/differences">,
  signal?: AbortSignal,
): Promise<Differences> {
  return get("/api/v1/traces/differences", { query, signal }) as Promise<unknown> as Promise<Differences>;
}
