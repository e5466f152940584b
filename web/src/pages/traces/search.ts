/** A search as the address has it, and as the server is asked. */

import type { QueryOf } from "../../api/client";
import type { SpanSelection } from "../../api/traceAnalysis";
import { choice, flag, large, list, text, whole, type SetState, type StateOf } from "../../app/address";
import { boundsOf, rangeParameters } from "../../app/range";
import { nowNs } from "../../format/times";
import { bothOf } from "./filter";

export const ORDERS = ["newest", "oldest", "longest", "shortest", "most_spans", "most_errors"] as const;
export const ORDER_NAMES: Record<(typeof ORDERS)[number], string> = {
  newest: "Newest first",
  oldest: "Oldest first",
  longest: "Longest first",
  shortest: "Shortest first",
  most_spans: "Most spans first",
  most_errors: "Most errors first",
};

export const shape = {
  service: text(),
  operation: text(),
  q: text(),
  text: text(),
  ...rangeParameters("24h"),
  /** The point in time that a relative range ends at while one pages through it. */
  at: large(),
  errors: flag(),
  min: text(),
  max: text(),
  /** What `min` and `max` bound. */
  of: choice(["trace", "span"]),
  order: choice(ORDERS),
  limit: whole(50),
  cursor: text(),
  live: flag(),
  pick: list(),
  /** What the picture of latencies shows; empty chooses by the search. */
  heat: choice(["", "roots", "spans", "off"]),
  /** A part of the picture: start, end, shortest and longest in nanoseconds. */
  box: text(),
};
export type SearchState = StateOf<typeof shape>;
export type SetSearch = SetState<typeof shape>;

/** What a saved search keeps: all but the place in its results. */
export const FORM_FIELDS = [
  "service",
  "operation",
  "q",
  "text",
  "last",
  "start",
  "end",
  "errors",
  "min",
  "max",
  "of",
  "order",
] as const;

const UNITS: Record<string, number> = {
  ns: 1e-6,
  us: 1e-3,
  µs: 1e-3,
  ms: 1,
  s: 1_000,
  m: 60_000,
  min: 60_000,
  h: 3_600_000,
};

/** Reads a duration that a person typed, `250ms`, `1.5 s`, in milliseconds; null if it is none, undefined if it is empty. */
export function readDuration(typed: string): number | null | undefined {
  if (!typed.trim()) return undefined;
  const [, amount, unit] = /^(\d+(?:\.\d+)?)\s*([a-zµ]*)$/i.exec(typed.trim()) ?? [];
  if (amount === undefined) return null;
  const factor = UNITS[(unit || "ms").toLowerCase()];
  return factor === undefined ? null : Number(amount) * factor;
}

/** Returns the bounds of durations that the state has and that are valid, in milliseconds. */
function durations(state: SearchState): { min: number | undefined; max: number | undefined } {
  return { min: readDuration(state.min) ?? undefined, max: readDuration(state.max) ?? undefined };
}

/** Returns the spans that a search selects: what one span must meet, and when it starts. */
export function selectionOf(state: SearchState, now: bigint): SpanSelection {
  const { start, end } = boundsOf(state, now);
  let where = state.q;
  if (state.of === "span") {
    const { min, max } = durations(state);
    if (min !== undefined) where = bothOf(where, `duration >= ${Math.round(min * 1e6)}ns`);
    if (max !== undefined) where = bothOf(where, `duration <= ${Math.round(max * 1e6)}ns`);
  }
  if (state.text.trim()) where = bothOf(where, `text ~ ${JSON.stringify(state.text)}`);
  return {
    service: state.service || undefined,
    operation: state.operation || undefined,
    where: where || undefined,
    start: start?.toString(),
    end: end?.toString(),
  };
}

/** Returns the query of a search. */
export function queryOf(state: SearchState, now: bigint = nowNs()): QueryOf<"GET /api/v1/traces"> {
  const { min, max } = state.of === "trace" ? durations(state) : { min: undefined, max: undefined };
  return {
    ...selectionOf(state, state.at ?? now),
    has_errors: state.errors || undefined,
    min_duration_ms: min,
    max_duration_ms: max,
    order: state.order,
    limit: state.limit,
    cursor: state.cursor || undefined,
  };
}

/** Whether the search asks for more than a time and an order. */
export function isFiltered(state: SearchState): boolean {
  return !!(state.service || state.operation || state.q || state.text || state.errors || state.min || state.max);
}
