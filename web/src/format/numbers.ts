/** Numbers as people read them: grouped digits, and units always. */

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** 12,345 — with all digits. */
export function count(value: number | bigint): string {
  return whole.format(value);
}

/** 12.3K — for places where space is short. */
export function shortCount(value: number | bigint): string {
  return Number(value) < 10_000 ? whole.format(value) : compact.format(value);
}

/** Three digits that matter. */
export function digits(value: number): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 100
    ? whole.format(value)
    : size >= 10
      ? value.toFixed(1)
      : size >= 0.01
        ? value.toFixed(2)
        : value.toPrecision(2);
}

const BYTES = ["B", "KB", "MB", "GB", "TB", "PB"];

export function bytes(value: number | bigint): string {
  let size = Number(value);
  let unit = 0;
  while (Math.abs(size) >= 1000 && unit < BYTES.length - 1) [size, unit] = [size / 1000, unit + 1];
  return `${unit === 0 ? whole.format(size) : size >= 100 ? size.toFixed(0) : size.toFixed(1)} ${BYTES[unit]}`;
}

/** A duration of nanoseconds: 85 µs, 1.25 ms, 3.4 s, 2 min 5 s, 3 h 20 min. */
export function duration(ns: number | bigint): string {
  const value = Number(ns);
  const size = Math.abs(value);
  if (size < 1_000) return `${whole.format(value)} ns`;
  if (size < 1e6) return `${digits(value / 1e3)} µs`;
  if (size < 1e9) return `${digits(value / 1e6)} ms`;
  if (size < 60e9) return `${digits(value / 1e9)} s`;
  const seconds = Math.round(size / 1e9);
  const sign = value < 0 ? "−" : "";
  const parts: [number, string][] = [
    [Math.floor(seconds / 86_400), "d"],
    [Math.floor(seconds / 3_600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [seconds % 60, "s"],
  ];
  const from = parts.findIndex(([amount]) => amount > 0);
  const shown = parts.slice(from, from + 2).filter(([amount]) => amount > 0);
  return sign + shown.map(([amount, unit]) => `${amount} ${unit}`).join(" ");
}

export function percent(share: number): string {
  const value = share * 100;
  if (value === 0) return "0 %";
  return `${value < 0.1 ? "< 0.1" : value < 10 ? value.toFixed(1) : value.toFixed(0)} %`;
}

/** `3 spans`, `1 span`. */
export function counted(value: number | bigint, one: string, many = `${one}s`): string {
  return `${count(value)} ${Number(value) === 1 ? one : many}`;
}

/** How often: 12.5/s, 3.40/min, 2/h; the unit is the largest in which it is at least 1. */
export function rate(perSecond: number): string {
  if (perSecond === 0) return "0/s";
  if (perSecond >= 1) return `${digits(perSecond)}/s`;
  return perSecond * 60 >= 1 ? `${digits(perSecond * 60)}/min` : `${digits(perSecond * 3_600)}/h`;
}
