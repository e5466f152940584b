/** Values that look the same everywhere: a time with its zone, a duration, a size, a number. */

import { useEffect, useState } from "preact/hooks";
import { bytes, count, duration, shortCount } from "../format/numbers";
import { ago, exactTime, nsOf, shortTime, zoneName, type Instant } from "../format/times";

interface TimeProps {
  at: Instant | null | undefined;
  /** Digits of a second. */
  digits?: number;
}

/** A point in time in the chosen zone; exact to the nanosecond on hover. */
export function Time({ at, digits = 0 }: TimeProps) {
  if (at === null || at === undefined) return <span class="nothing">–</span>;
  return (
    <time class="number" dateTime={new Date(Number(nsOf(at) / 1_000_000n)).toISOString()} title={exactTime(at)}>
      {shortTime(at, digits)} <span class="zone">{zoneName()}</span>
    </time>
  );
}

const TICK_MS = 10_000;

/** How long ago; the time itself on hover. */
export function Ago({ at }: { at: Instant | null | undefined }) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((before) => before + 1), TICK_MS);
    return () => clearInterval(timer);
  }, []);
  if (at === null || at === undefined) return <span class="nothing">–</span>;
  return (
    <time class="number" dateTime={new Date(Number(nsOf(at) / 1_000_000n)).toISOString()} title={exactTime(at)}>
      {ago(at)}
    </time>
  );
}

export function Duration({ ns }: { ns: number | bigint | null | undefined }) {
  if (ns === null || ns === undefined) return <span class="nothing">–</span>;
  return (
    <span class="number" title={`${count(ns)} ns`}>
      {duration(ns)}
    </span>
  );
}

export function Bytes({ value }: { value: number | bigint | null | undefined }) {
  if (value === null || value === undefined) return <span class="nothing">–</span>;
  return (
    <span class="number" title={`${count(value)} bytes`}>
      {bytes(value)}
    </span>
  );
}

/** A whole number; with `short` 12.3K, and all digits on hover. */
export function Count({ value, short }: { value: number | bigint | null | undefined; short?: boolean }) {
  if (value === null || value === undefined) return <span class="nothing">–</span>;
  return (
    <span class="number" title={short ? count(value) : undefined}>
      {short ? shortCount(value) : count(value)}
    </span>
  );
}
