/** Traces: search, figures, names. */

import { get, type QueryOf } from "./client";

export interface TraceSummary {
  trace_id: string;
  root_service: string | null;
  root_operation: string | null;
  start_ns: bigint;
  duration_ns: number | bigint;
  span_count: number;
  error_count: number;
  services: string[];
}

export interface TracePage {
  traces: TraceSummary[];
  next_cursor: string | null;
  previous_cursor: string | null;
  total: number | null;
}

export interface MetricPoint {
  start: string;
  seconds: number;
  group: Record<string, string>;
  count: number;
  rate: number;
  errors: number;
  error_rate: number;
  avg_ns: number;
  p50_ns: number;
  p95_ns: number;
  p99_ns: number;
}

export function searchTraces(query: QueryOf<"GET /api/v1/traces">, signal?: AbortSignal): Promise<TracePage> {
  return get("/api/v1/traces", { query, signal }) as Promise<unknown> as Promise<TracePage>;
}

export function traceMetrics(
  query: QueryOf<"GET /api/v1/traces/metrics">,
  signal?: AbortSignal,
): Promise<MetricPoint[]> {
  return get("/api/v1/traces/metrics", { query, signal }) as Promise<unknown> as Promise<MetricPoint[]>;
}

export function listServices(signal?: AbortSignal): Promise<string[]> {
  return get("/api/v1/services", { signal });
}
