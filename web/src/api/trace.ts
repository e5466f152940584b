/** One trace: windows of its spans, the place of a span, find, comparison, downloads. Its skeleton is read by a worker. */

import { addressOf, get, getArrow } from "./client";
import type { Json } from "./json";

export interface SpanEvent {
  name: string;
  time_ns: bigint;
  attributes: Record<string, Json>;
}

export interface SpanLink {
  trace_id: string;
  span_id: string;
  attributes?: Record<string, Json>;
}

/** A span as a window shows it, with its place in the tree. */
export interface TreeSpan {
  trace_id: string;
  span_id: string;
  parent_span_id: string | null;
  name: string;
  service: string;
  kind: string | null;
  start_ns: bigint;
  end_ns: bigint;
  status: string;
  status_message: string;
  attributes: Record<string, Json>;
  resource: Record<string, Json> | null;
  scope_name: string | null;
  scope_version: string | null;
  scope_attributes: Record<string, Json> | null;
  events: SpanEvent[];
  links: SpanLink[];
  input: Json;
  output: Json;
  model: string | null;
  input_tokens: number | null;
  output_tokens: number | null;
  cost: number | null;
  session_id: string | null;
  user_id: string | null;
  reported_end_ns: bigint | null;
  depth: number;
  orphan: boolean;
  in_cycle: boolean;
  order: number;
  self_ns: number;
  critical_ns: number;
  children: number;
  descendants: number;
  starts_early: boolean;
  ends_late: boolean;
}

export interface TraceWindow {
  trace_id: string;
  spans: TreeSpan[];
  offset: number;
  next_offset: number | null;
  span_count: number;
  error_count: number;
  start_ns: bigint;
  end_ns: bigint;
  roots: number;
  orphans: number;
  cycles: number;
  skewed: number;
  deepest: number;
}

export interface SpanPlace {
  row: number;
  depth: number;
  ancestors: number[];
}

export function getWindow(
  traceId: string,
  query: { offset?: number; limit?: number; around?: string },
  signal?: AbortSignal,
): Promise<TraceWindow> {
  const path = { trace_id: traceId };
  return get("/api/v1/traces/{trace_id}", { path, query, signal }) as Promise<unknown> as Promise<TraceWindow>;
}

export function getPlace(traceId: string, spanId: string, signal?: AbortSignal): Promise<SpanPlace> {
  const path = { trace_id: traceId };
  const query = { span_id: spanId };
  return get("/api/v1/traces/{trace_id}/place", { path, query, signal }) as Promise<unknown> as Promise<SpanPlace>;
}

/** The rows that match, ascending, and with them those of their ancestors. */
export interface Found {
  matches: Uint32Array;
  shown: Uint32Array;
  /** How many match; more than there are rows here if there are very many. */
  total: number;
}

export async function findInTrace(
  traceId: string,
  query: { text?: string; where?: string },
  signal?: AbortSignal,
): Promise<Found> {
  const path = { trace_id: traceId };
  const table = await getArrow("/api/v1/traces/{trace_id}/find", { path, query, signal });
  const shown = table.getChild("row").toArray() as Uint32Array;
  const is = table.getChild("match").toArray() as Uint8Array;
  const matches = shown.filter((_row, place) => is[place] === 1);
  return { matches, shown, total: Number(table.schema.metadata?.get("matches") ?? matches.length) };
}

export interface PathChange {
  path: [service: string, operation: string][];
  change: "added" | "removed" | "slower" | "faster" | "same";
  count_before: number;
  count_after: number;
  duration_before_ns: number;
  duration_after_ns: number;
  self_before_ns: number;
  self_after_ns: number;
}

export interface TraceComparison {
  trace_id_before: string;
  trace_id_after: string;
  duration_before_ns: number;
  duration_after_ns: number;
  spans_before: number;
  spans_after: number;
  changes: PathChange[];
}

export function compareTraces(before: string, after: string, signal?: AbortSignal): Promise<TraceComparison> {
  const query = { before, after, limit: 2_000 };
  return get("/api/v1/traces/compare", { query, signal }) as Promise<unknown> as Promise<TraceComparison>;
}

export const DOWNLOADS = [
  ["otlp", "OTLP JSON"],
  ["jaeger", "Jaeger JSON"],
  ["perfetto", "Perfetto (Chrome trace) JSON"],
] as const;

export function downloadAddress(traceId: string, format: string): string {
  return addressOf("/api/v1/traces/{trace_id}/download", { trace_id: traceId }, { format }).href;
}
