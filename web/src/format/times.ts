/** Points in time: nanoseconds since 1970 as BigInt, shown in the zone that the person chose. */

import { zone } from "../app/preferences";
import { duration } from "./numbers";

export type Instant = bigint | number | string | Date;

const NS_PER_MS = 1_000_000n;

/** Returns nanoseconds since 1970: of nanoseconds, of an ISO text with up to nine digits of a second, of a Date. */
export function nsOf(value: Instant): bigint {
  if (typeof value === "bigint") return value;
  if (typeof value === "number") return BigInt(Math.round(value));
  if (value instanceof Date) return BigInt(value.getTime()) * NS_PER_MS;
  const parts = /^(.*?:\d\d)(?:\.(\d{1,9}))?(.*)$/.exec(value.trim().replace(" ", "T"));
  const ms = Date.parse(parts ? parts[1] + (parts[3] || "Z") : value);
  if (Number.isNaN(ms)) throw new Error(`not a time: ${value}`);
  return BigInt(ms) * NS_PER_MS + BigInt((parts?.[2] ?? "").padEnd(9, "0"));
}

export function nowNs(): bigint {
  return BigInt(Date.now()) * NS_PER_MS;
}

function dateOf(ns: bigint): Date {
  return new Date(Number(ns / NS_PER_MS));
}

function two(value: number): string {
  return String(value).padStart(2, "0");
}

function offset(date: Date): string {
  const minutes = -date.getTimezoneOffset();
  const size = Math.abs(minutes);
  return `${minutes < 0 ? "-" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
}

interface Parts {
  day: string;
  clock: string;
  zone: string;
}

function partsOf(ns: bigint): Parts {
  const date = dateOf(ns);
  const utc = zone.value === "utc";
  const [y, mo, d, h, mi, s] = utc
    ? [
        date.getUTCFullYear(),
        date.getUTCMonth(),
        date.getUTCDate(),
        date.getUTCHours(),
        date.getUTCMinutes(),
        date.getUTCSeconds(),
      ]
    : [date.getFullYear(), date.getMonth(), date.getDate(), date.getHours(), date.getMinutes(), date.getSeconds()];
  return {
    day: `${y}-${two(mo + 1)}-${two(d)}`,
    clock: `${two(h)}:${two(mi)}:${two(s)}`,
    zone: utc ? "Z" : offset(date),
  };
}

function fraction(ns: bigint): string {
  return String(((ns % 1_000_000_000n) + 1_000_000_000n) % 1_000_000_000n).padStart(9, "0");
}

/** 2026-11-17T18:02:03.123456789+01:00 — to the nanosecond, in the chosen zone. */
export function exactTime(value: Instant): string {
  const ns = nsOf(value);
  const { day, clock, zone: written } = partsOf(ns);
  return `${day}T${clock}.${fraction(ns)}${written}`;
}

/** 2026-11-17 18:02:03.123 — `digits` of a second, none by default; the zone is shown beside or above. */
export function shortTime(value: Instant, digits = 0): string {
  const ns = nsOf(value);
  const { day, clock } = partsOf(ns);
  return `${day} ${clock}${digits ? `.${fraction(ns).slice(0, digits)}` : ""}`;
}

/** The name of the chosen zone: UTC, or +01:00. */
export function zoneName(): string {
  return zone.value === "utc" ? "UTC" : `UTC${offset(new Date())}`;
}

/** `5 min ago`, `in 3 s`, `just now`. */
export function ago(value: Instant, now: bigint = nowNs()): string {
  const passed = now - nsOf(value);
  const size = passed < 0n ? -passed : passed;
  if (size < 5_000_000_000n) return "just now";
  const seconds = size / 1_000_000_000n;
  const text = seconds < 60n ? `${seconds} s` : duration(size).split(" ").slice(0, 2).join(" ");
  return passed < 0n ? `in ${text}` : `${text} ago`;
}

/** Reads what a person typed, in the chosen zone unless the text has one. Returns null if it is not a time. */
export function readTime(text: string): bigint | null {
  const trimmed = text.trim();
  const shape = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(?::(\d\d)(\.\d{1,9})?)?)?\s*(Z|[+-]\d\d:?\d\d)?$/i.exec(trimmed);
  if (!shape) return null;
  const [, day, clock = "00:00", seconds = "00", part = "", written] = shape;
  const inZone = written ?? (zone.value === "utc" ? "Z" : "");
  const ms = Date.parse(`${day}T${clock}:${seconds}${inZone}`);
  if (Number.isNaN(ms)) return null;
  return BigInt(ms) * NS_PER_MS + BigInt(part.slice(1).padEnd(9, "0"));
}
