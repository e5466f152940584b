/** A range of time in the address: a number of hours up to now, or from one point to another. */

import { counted } from "../format/numbers";
import { nowNs, shortTime, zoneName } from "../format/times";
import { large, type Parameter } from "./address";

export interface Range {
  /** `15m`, `24h`, `7d`; `any` is all of time. Without meaning if `start` or `end` is given. */
  last: string;
  start: bigint | null;
  end: bigint | null;
}

const UNITS: Record<string, [bigint, string]> = {
  m: [60_000_000_000n, "minute"],
  h: [3_600_000_000_000n, "hour"],
  d: [86_400_000_000_000n, "day"],
};
const SHAPE = /^(\d{1,4})([mhd])$/;

/** The parameters of a range, for `useAddress`. */
export function rangeParameters(fallback: string): {
  last: Parameter<string>;
  start: Parameter<bigint | null>;
  end: Parameter<bigint | null>;
} {
  const read = ([value]: string[]) =>
    value !== undefined && (value === "any" || SHAPE.test(value)) ? value : fallback;
  return { last: { fallback, read, write: (value) => [value] }, start: large(), end: large() };
}

/** Returns how long a range of the form `24h` is, in nanoseconds; null for `any`. */
export function lengthOf(last: string): bigint | null {
  const [, amount, unit] = SHAPE.exec(last) ?? [];
  return amount === undefined ? null : BigInt(amount) * UNITS[unit!]![0];
}

export function isAbsolute(range: Range): boolean {
  return range.start !== null || range.end !== null;
}

/** Returns the two ends as of a point in time; null is open. */
export function boundsOf(range: Range, now: bigint = nowNs()): { start: bigint | null; end: bigint | null } {
  if (isAbsolute(range)) return { start: range.start, end: range.end };
  const length = lengthOf(range.last);
  return { start: length === null ? null : now - length, end: null };
}

/** Last 24 hours. */
export function nameOfLast(last: string): string {
  const [, amount, unit] = SHAPE.exec(last) ?? [];
  if (amount === undefined) return "Any time";
  return amount === "1" ? `Last ${UNITS[unit!]![1]}` : `Last ${counted(Number(amount), UNITS[unit!]![1])}`;
}

/** Last 24 hours; 2026-11-17 18:00:00 – 19:00:00 UTC. */
export function nameOfRange(range: Range): string {
  if (!isAbsolute(range)) return nameOfLast(range.last);
  const [from, until] = [range.start, range.end].map((each) => (each === null ? null : shortTime(each)));
  if (from && until) {
    const sameDay = from.slice(0, 10) === until.slice(0, 10);
    return `${from} – ${sameDay ? until.slice(11) : until} ${zoneName()}`;
  }
  return `${from ? `Since ${from}` : `Until ${until}`} ${zoneName()}`;
}
