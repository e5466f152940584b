/** The statements a person works on, and those they ran: kept in this browser. */

import { signal } from "@preact/signals";

export interface Sheet {
  id: string;
  sql: string;
}

export interface Ran {
  sql: string;
  /** Milliseconds since 1970. */
  at: number;
  ms: number;
  rows: number | null;
  engine: string;
  error: string;
}

const MOST_RAN = 200;
const MOST_TEXT = 100_000;

function stored<T>(name: string, fallback: T): T {
  try {
    return (JSON.parse(localStorage.getItem(`crannog.sql.${name}`) ?? "null") as T | null) ?? fallback;
  } catch {
    return fallback;
  }
}

function store(name: string, value: unknown): void {
  try {
    localStorage.setItem(`crannog.sql.${name}`, JSON.stringify(value));
  } catch {
    // Storage is blocked or full: it lasts as long as the page.
  }
}

let numbered = Date.now();

export function newSheet(sql = ""): Sheet {
  return { id: `s${(numbered++).toString(36)}`, sql };
}

const found = stored<Sheet[]>("sheets", []).filter((each) => typeof each?.sql === "string" && each.id);
export const sheets = signal<Sheet[]>(found.length ? found : [newSheet()]);
export const ran = signal<Ran[]>(stored<Ran[]>("history", []).filter((each) => typeof each?.sql === "string"));

export function setSheets(next: Sheet[]): void {
  sheets.value = next;
  store(
    "sheets",
    next.filter((sheet) => sheet.sql.length < MOST_TEXT),
  );
}

export function addRan(entry: Ran): void {
  const others = ran.value.filter((each) => each.sql !== entry.sql);
  ran.value = [entry, ...others].slice(0, MOST_RAN);
  store(
    "history",
    ran.value.filter((each) => each.sql.length < MOST_TEXT),
  );
}

export function clearRan(): void {
  ran.value = [];
  store("history", []);
}

/** A name for a statement: the table it reads, or how it begins. */
export function titleOf(sheet: Sheet, place: number): string {
  const table = /\b(?:from|join|table|describe)\s+((?:`[^`]+`|[\w-]+)(?:\.(?:`[^`]+`|[\w-]+))*)/i.exec(sheet.sql);
  if (table) return table[1]!.split(".").pop()!.replace(/`/g, "");
  return sheet.sql.trim().slice(0, 20).split("\n")[0] || `Query ${place + 1}`;
}
