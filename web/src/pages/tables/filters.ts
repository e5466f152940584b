/** Filters of rows as the server takes them: a column, an operator and a value of the column's type. */

import type { Kind } from "../../format/cells";

export const OPERATORS = [
  ["=", "is"],
  ["!=", "is not"],
  ["<", "<"],
  ["<=", "≤"],
  [">", ">"],
  [">=", "≥"],
  ["contains", "contains"],
  ["icontains", "contains, any case"],
  ["starts_with", "starts with"],
  ["in", "is one of"],
  ["is_null", "is null"],
  ["is_not_null", "is not null"],
] as const;
export type Operator = (typeof OPERATORS)[number][0];
const OF_TEXT: readonly Operator[] = ["contains", "icontains", "starts_with"];

export interface Filter {
  column: string;
  operator: Operator;
  /** As JSON writes it; undefined for `is_null` and `is_not_null`. */
  value?: string;
}

export function operatorsFor(kind: Kind): (readonly [Operator, string])[] {
  return OPERATORS.filter(([operator]) => {
    if (kind === "nested") return operator.startsWith("is_");
    return kind === "text" || !OF_TEXT.includes(operator);
  });
}

/** Reads a filter of the address, `["column","op",value]`; null if it is none. */
export function readFilter(text: string): Filter | null {
  try {
    const found: unknown = JSON.parse(text);
    if (!Array.isArray(found) || typeof found[0] !== "string") return null;
    // The digits of a large number stay as they are: the value is taken from the text.
    const head = JSON.stringify(found.slice(0, 2)).slice(0, -1);
    const value = text.startsWith(head) ? text.slice(head.length + 1, -1) : JSON.stringify(found[2]);
    const operator = found[1] as Operator;
    return found.length > 2 ? { column: found[0], operator, value } : { column: found[0], operator };
  } catch {
    return null;
  }
}

export function writeFilter({ column, operator, value }: Filter): string {
  const head = JSON.stringify([column, operator]).slice(0, -1);
  return value === undefined ? `${head}]` : `${head},${value}]`;
}

/** Makes the JSON of what a person typed, for a column of a kind: numbers with all their digits, else a text. */
export function typedValue(text: string, kind: Kind, operator: Operator): string {
  const one = (part: string) => {
    const plain = part.trim();
    if (kind === "number" && /^-?\d+(\.\d+)?([eE][-+]?\d+)?$/.test(plain)) return plain;
    if (kind === "boolean" && /^(true|false)$/i.test(plain)) return plain.toLowerCase();
    return JSON.stringify(kind === "text" ? part : plain);
  };
  return operator === "in"
    ? `[${text
        .split(",")
        .map((part) => one(part.trim()))
        .join(",")}]`
    : one(text);
}

export function filterText(filter: Filter): string {
  const name = OPERATORS.find(([operator]) => operator === filter.operator)?.[1] ?? filter.operator;
  return `${filter.column} ${name}${filter.value === undefined ? "" : ` ${filter.value}`}`;
}
