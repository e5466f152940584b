/**
 * The values of Arrow columns as people read them: exact, whatever the type.
 *
 * Values are taken from the batches themselves, since numbers of JavaScript would round decimals, large integers and times.
 */

import { TimeUnit, Type, type Batch, type Column, type DataType, type Table } from "@uwdata/flechette";
import { exactTime, shortTime } from "./times";

/** What a type is, as far as a page cares. */
export type Kind = "number" | "text" | "time" | "date" | "boolean" | "binary" | "nested";

export interface ResultColumn {
  name: string;
  /** As Spark names it: `bigint`, `decimal(12,2)`, `array<string>`. */
  type: string;
  kind: Kind;
  /** Whether its times have a zone, so that they are shown in the chosen one. */
  zoned: boolean;
}

/** A type as Flechette describes it; which fields it has depends on its id. */
interface LooseType {
  typeId: number;
  bitWidth?: number;
  signed?: boolean;
  precision?: number;
  scale?: number;
  unit?: number;
  timezone?: string | null;
  children?: { name: string; type: LooseType }[];
  dictionary?: LooseType;
}

type Inner = Batch<unknown> & {
  values: ArrayLike<number | bigint>;
  offsets: ArrayLike<number | bigint>;
  children: Inner[];
  type: LooseType;
};

/** Whether a value is there; a batch without nulls has no bits to say so. */
function isThere(batch: Inner, place: number): boolean {
  return batch.nullCount === 0 ? batch.type.typeId !== Type.Null : batch.isValid(place);
}

const INTEGERS: Record<number, string> = { 8: "tinyint", 16: "smallint", 32: "int", 64: "bigint" };

/** Returns the name of a type in Spark SQL. */
export function sparkType(given: DataType | LooseType): string {
  const type = given as LooseType;
  const child = (place = 0) => (type.children?.[place] ? sparkType(type.children[place].type) : "void");
  switch (type.typeId) {
    case Type.Null:
      return "void";
    case Type.Bool:
      return "boolean";
    case Type.Int:
      return INTEGERS[type.bitWidth ?? 64] ?? "bigint";
    case Type.Float:
      return type.precision === 1 ? "float" : "double";
    case Type.Decimal:
      return `decimal(${type.precision},${type.scale})`;
    case Type.Utf8:
    case Type.LargeUtf8:
    case Type.Utf8View:
      return "string";
    case Type.Binary:
    case Type.LargeBinary:
    case Type.FixedSizeBinary:
    case Type.BinaryView:
      return "binary";
    case Type.Date:
      return "date";
    case Type.Timestamp:
      return type.timezone ? "timestamp" : "timestamp_ntz";
    case Type.Duration:
      return "interval day to second";
    case Type.List:
    case Type.LargeList:
    case Type.FixedSizeList:
      return `array<${child()}>`;
    case Type.Map:
      return `map<${(type.children?.[0]?.type.children ?? []).map((each) => sparkType(each.type)).join(",")}>`;
    case Type.Struct:
      return `struct<${(type.children ?? []).map((each) => `${each.name}:${sparkType(each.type)}`).join(",")}>`;
    case Type.Dictionary:
      return type.dictionary ? sparkType(type.dictionary) : "string";
    default:
      return "unknown";
  }
}

export function kindOf(type: string): Kind {
  if (/^(tinyint|smallint|int|bigint|float|double|decimal)/.test(type)) return "number";
  if (type.startsWith("timestamp")) return "time";
  if (/^(array|map|struct)</.test(type)) return "nested";
  return type === "date" || type === "boolean" || type === "binary" ? type : "text";
}

export function columnsOf(table: Table): ResultColumn[] {
  return table.schema.fields.map((field) => {
    const type = sparkType(field.type);
    return { name: field.name, type, kind: kindOf(type), zoned: type === "timestamp" };
  });
}

const CUT = 400;
const SHOWN_BYTES = 24;

/** Finds the batch of a row, and the place of the row in it. */
function placed(column: Column<unknown>, row: number): [Inner, number] {
  const { offsets, data } = column;
  let [low, high] = [0, data.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (offsets[middle]! <= row) low = middle;
    else high = middle - 1;
  }
  return [data[low] as Inner, row - offsets[low]!];
}

/** Returns a cell as text; null if the value is null. `whole` leaves nothing out; otherwise long ones are cut. */
export function cellText(column: Column<unknown>, row: number, whole = false): string | null {
  const [batch, place] = placed(column, row);
  if (!batch || !isThere(batch, place)) return null;
  return textAt(batch, place, whole, false);
}

/** Returns a cell as a number, for charts: times are seconds since 1970; null if it has none. */
export function cellNumber(column: Column<unknown>, row: number): number | null {
  const [batch, place] = placed(column, row);
  if (!batch || !isThere(batch, place)) return null;
  const type = batch.type;
  if (type.typeId === Type.Timestamp) return Number(microsAt(batch, place)) / 1e6;
  if (type.typeId === Type.Date) return dayNumber(batch, place) * 86_400;
  if (type.typeId === Type.Decimal) return Number(decimalText(batch.at(place) as bigint | number, type.scale ?? 0));
  const value = batch.at(place);
  const number = typeof value === "bigint" || typeof value === "number" ? Number(value) : NaN;
  return Number.isFinite(number) ? number : null;
}

function textAt(batch: Inner, place: number, whole: boolean, quoted: boolean): string {
  const type = batch.type;
  switch (type.typeId) {
    case Type.Decimal:
      return decimalText(batch.at(place) as bigint | number, type.scale ?? 0);
    case Type.Timestamp: {
      const ns = microsAt(batch, place) * 1_000n;
      if (!type.timezone) return civil(ns);
      return whole ? exactTime(ns) : shortTime(ns, 6);
    }
    case Type.Date:
      return dateText(dayNumber(batch, place));
    case Type.Binary:
    case Type.LargeBinary:
    case Type.FixedSizeBinary:
    case Type.BinaryView:
      return binaryText(batch.at(place) as Uint8Array, whole);
    case Type.Float:
      return floatText(batch.at(place) as number);
    case Type.List:
    case Type.LargeList:
      return listText(batch, place, whole);
    case Type.Map:
      return mapText(batch, place, whole);
    case Type.Struct:
      return structText(batch, place, whole);
    default: {
      const text = String(batch.at(place));
      const cut = whole || text.length <= CUT ? text : `${text.slice(0, CUT)}…`;
      return quoted && (typeof batch.at(place) === "string" || type.typeId === Type.Dictionary)
        ? JSON.stringify(cut)
        : cut;
    }
  }
}

const nestedText = (batch: Inner, place: number, whole: boolean) =>
  isThere(batch, place) ? textAt(batch, place, whole, true) : "null";

function joined(texts: Iterable<string>, whole: boolean): string {
  const parts: string[] = [];
  let length = 0;
  for (const text of texts) {
    if (!whole && length > CUT) {
      parts.push("…");
      break;
    }
    parts.push(text);
    length += text.length;
  }
  return parts.join(", ");
}

function* range(batch: Inner, place: number): Generator<number> {
  const until = Number(batch.offsets[place + 1]);
  for (let at = Number(batch.offsets[place]); at < until; at++) yield at;
}

function* mapped<T>(items: Iterable<T>, change: (item: T) => string): Generator<string> {
  for (const item of items) yield change(item);
}

function listText(batch: Inner, place: number, whole: boolean): string {
  const values = batch.children[0]!;
  return `[${joined(
    mapped(range(batch, place), (at) => nestedText(values, at, whole)),
    whole,
  )}]`;
}

function mapText(batch: Inner, place: number, whole: boolean): string {
  const [keys, values] = batch.children[0]!.children as [Inner, Inner];
  const pairs = mapped(range(batch, place), (at) => `${nestedText(keys, at, whole)}: ${nestedText(values, at, whole)}`);
  return `{${joined(pairs, whole)}}`;
}

function structText(batch: Inner, place: number, whole: boolean): string {
  const fields = batch.type.children ?? [];
  const pairs = mapped(
    fields.entries(),
    ([at, field]) => `${JSON.stringify(field.name)}: ${nestedText(batch.children[at]!, place, whole)}`,
  );
  return `{${joined(pairs, whole)}}`;
}

function microsAt(batch: Inner, place: number): bigint {
  const value = BigInt(batch.values[place]!);
  switch (batch.type.unit) {
    case TimeUnit.SECOND:
      return value * 1_000_000n;
    case TimeUnit.MILLISECOND:
      return value * 1_000n;
    case TimeUnit.NANOSECOND:
      return value / 1_000n;
    default:
      return value;
  }
}

/** Days since 1970; dates of Flechette are milliseconds. */
function dayNumber(batch: Inner, place: number): number {
  return Math.floor((batch.at(place) as number) / 86_400_000);
}

function dateText(day: number): string {
  const date = new Date(day * 86_400_000);
  if (Number.isNaN(date.getTime())) return `day ${day}`;
  const year = date.getUTCFullYear();
  const text = `${String(Math.abs(year)).padStart(4, "0")}-${two(date.getUTCMonth() + 1)}-${two(date.getUTCDate())}`;
  return year < 0 ? `-${text}` : text;
}

function two(value: number): string {
  return String(value).padStart(2, "0");
}

/** A time without a zone, as it is. */
function civil(ns: bigint): string {
  const second = 1_000_000_000n;
  const seconds = ns >= 0n ? ns / second : (ns - second + 1n) / second;
  const part = String(ns - seconds * second).padStart(9, "0");
  const date = new Date(Number(seconds) * 1000);
  const clock = `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}:${two(date.getUTCSeconds())}`;
  return `${dateText(Math.floor(Number(seconds) / 86_400))} ${clock}.${part.slice(0, 6)}`;
}

function decimalText(scaled: bigint | number, scale: number): string {
  const value = BigInt(scaled);
  const digits = String(value < 0n ? -value : value).padStart(scale + 1, "0");
  const sign = value < 0n ? "-" : "";
  return scale ? `${sign}${digits.slice(0, -scale)}.${digits.slice(-scale)}` : sign + digits;
}

function floatText(value: number): string {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "Infinity" : "-Infinity";
  return Object.is(value, -0) ? "-0" : String(value);
}

function binaryText(bytes: Uint8Array, whole: boolean): string {
  const shown = whole ? bytes : bytes.subarray(0, SHOWN_BYTES);
  const hex = Array.from(shown, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
  return whole ? hex : `${hex}${bytes.length > SHOWN_BYTES ? "…" : ""} (${bytes.length} B)`.trim();
}
