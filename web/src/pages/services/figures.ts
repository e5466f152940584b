/** Rate, errors and durations of groups of spans: what is asked, and what charts and tables show of the answer. */

import type { QueryOf } from "../../api/client";
import { traceMetrics, type MetricPoint } from "../../api/traces";
import { choice, text, type StateOf } from "../../app/address";
import { boundsOf, rangeParameters } from "../../app/range";
import { COLOURS, colourOf } from "../../format/colours";
import { nsOf } from "../../format/times";

export const COUNTED = ["spans", "server", "traces"] as const;
export const COUNTED_NAMES: Record<(typeof COUNTED)[number], string> = {
  spans: "All spans",
  server: "Server spans",
  traces: "Whole traces",
};
export const QUANTILES = ["p50", "p95", "p99"] as const;

export const shape = {
  tab: choice(["figures", "map"]),
  by: text("service"),
  service: text(),
  q: text(),
  ...rangeParameters("3h"),
  of: choice(COUNTED),
  quantile: choice(QUANTILES, "p95"),
  sort: text("-rate"),
};
export type FiguresState = StateOf<typeof shape>;

const S = 1_000_000_000n;
const STEPS: [bigint, string][] = [
  [10n, "10s"],
  [30n, "30s"],
  [60n, "1m"],
  [300n, "5m"],
  [900n, "15m"],
  [3_600n, "1h"],
  [21_600n, "6h"],
  [86_400n, "1d"],
  [604_800n, "1w"],
];
const MOST_STEPS = 120n;
/** One bucket for all of a range: it begins in 1970, and is cut by the range. */
const WHOLE = "36500d";
const DRAWN = 8;

/** One value of what is grouped by. */
export interface Group {
  name: string;
  /** Null for spans that do not have the attribute. */
  value: string | null;
  colour: number;
  count: number;
  rate: number;
  errors: number;
  errorRate: number;
  p50: number;
  p95: number;
  p99: number;
  /** By time, as the charts have it. */
  rates: (number | null)[];
  errorRates: (number | null)[];
  durations: (number | null)[];
}

export interface Figures {
  times: number[];
  stepS: number;
  groups: Group[];
  /** The most frequent, which are drawn. */
  drawn: Group[];
}

function query(state: FiguresState, step: string, now: bigint): QueryOf<"GET /api/v1/traces/metrics"> {
  const { start, end } = boundsOf(state, now);
  return {
    service: state.service || undefined,
    where: state.q.trim() || undefined,
    kind: state.of === "server" ? "server" : undefined,
    of: state.of === "traces" ? "traces" : undefined,
    start: start?.toString(),
    end: (end ?? (start === null ? null : now))?.toString(),
    step,
    group_by: state.by ? [state.by] : undefined,
  };
}

/** Asks for the figures of a range as a whole and by time. */
export async function askFigures(state: FiguresState, now: bigint, signal: AbortSignal): Promise<Figures> {
  const whole = await traceMetrics(query(state, WHOLE, now), signal);
  if (whole.length === 0) return { times: [], stepS: 1, groups: [], drawn: [] };
  const { start, end } = boundsOf(state, now);
  const from = start ?? (await firstDay(state, now, signal));
  const length = (end ?? now) - from;
  const [seconds, step] = STEPS.find(([each]) => length / (each * S) <= MOST_STEPS) ?? STEPS.at(-1)!;
  const points = await traceMetrics(query(state, step, now), signal);
  return figuresOf(whole, points, state, Number(seconds), [from, end ?? now]);
}

/** The first day with spans, for a range without a start. */
async function firstDay(state: FiguresState, now: bigint, signal: AbortSignal): Promise<bigint> {
  const days = await traceMetrics({ ...query(state, "1d", now), group_by: undefined }, signal);
  return days.reduce((first, day) => (nsOf(day.start) < first ? nsOf(day.start) : first), now);
}

function groupOf(point: MetricPoint): string | null {
  return Object.values(point.group)[0] ?? null;
}

function figuresOf(
  whole: readonly MetricPoint[],
  points: readonly MetricPoint[],
  state: FiguresState,
  stepS: number,
  [from, until]: [bigint, bigint],
): Figures {
  const seconds = Math.max(1, Number(until - from) / 1e9);
  const starts = points.map((point) => Date.parse(point.start) / 1000);
  const first = starts.reduce((least, each) => Math.min(least, each), Infinity);
  const last = starts.reduce((most, each) => Math.max(most, each), -Infinity);
  const times: number[] = [];
  for (let at = first; at <= last; at += stepS) times.push(at);
  const places = new Map(times.map((at, index) => [at, index]));
  const groups = new Map<string | null, Group>();
  for (const point of whole) {
    const value = groupOf(point);
    groups.set(value, {
      name: value ?? (state.by ? `without ${state.by}` : "all"),
      value,
      colour: 0,
      count: point.count,
      rate: point.count / seconds,
      errors: point.errors,
      errorRate: point.error_rate,
      p50: point.p50_ns,
      p95: point.p95_ns,
      p99: point.p99_ns,
      rates: times.map(() => 0),
      errorRates: times.map(() => null),
      durations: times.map(() => null),
    });
  }
  points.forEach((point, index) => {
    const [group, place] = [groups.get(groupOf(point)), places.get(starts[index]!)];
    if (!group || place === undefined) return;
    group.rates[place] = point.rate;
    group.errorRates[place] = point.error_rate * 100;
    group.durations[place] = point[`${state.quantile}_ns`];
  });
  const sorted = [...groups.values()].sort((left, right) => right.count - left.count);
  const drawn = sorted.slice(0, DRAWN);
  colour(drawn);
  return { times, stepS, groups: sorted, drawn };
}

/** Gives each drawn group the colour of its name, or the next one where another has that. */
function colour(groups: readonly Group[]): void {
  const taken = new Set<number>();
  for (const group of groups) {
    let index = colourOf(group.name);
    while (taken.has(index)) index = (index + 1) % COLOURS;
    taken.add(index);
    group.colour = index;
  }
}
