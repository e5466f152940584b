/** Erasure: find the rows and traces of a person, hide or erase them, and the receipts that remain. */

import { get, post, postLines } from "./client";
import { ApiError } from "./errors";
import { writeJson } from "./json";
import { describeTable, lastOf, listTables, type TableDescription } from "./tables";

/** A value that a person is known by: a column of tables or an attribute of spans, and what it is. */
export interface Identifier {
  name: string;
  value: string;
}

export type Key = Record<string, unknown>;

export interface FoundInTable {
  table: string;
  keyColumns: string[];
  keys: Key[];
  /** There are more rows than are taken at once. */
  more: boolean;
  /** By which identifiers they were found. */
  by: string[];
}

export interface FoundTraces {
  traces: number;
  spans: number;
  services: Record<string, number>;
  days: Record<string, number>;
  /** One filter for each identifier that was found. */
  filters: Record<string, (string | number)[]>[];
  by: string[];
}

export interface Found {
  tables: FoundInTable[];
  traces: FoundTraces | null;
  /** Tables that could not be searched, and why. */
  failed: { table: string; message: string }[];
  /** How many tables were looked at, and those that have rows but no key, so that nothing can be deleted from them. */
  looked: number;
  keyless: string[];
}

export interface Place {
  place: string;
  looked_at: number;
  before: number;
  after: number;
}

export interface TableReceipt {
  table: string;
  keys: number;
  key_hashes: string[];
  actor: string;
  reason: string;
  erased_at: string;
  rows_erased: number;
  places: Place[];
  files_deleted: number;
  versions_lost: number[];
  readers_cut_off: number;
  seconds: number;
}

export interface Receipt {
  erasure_id: string;
  actor: string;
  reason: string;
  erased_at: string;
  tables: string[];
  keys: number;
  rows_erased: number;
  files_deleted: number;
  /** Places in which something was still found at the end: none, or the erasure failed. */
  found_after: number;
  receipts: TableReceipt[];
}

/** Maximum rows of a table to hide or erase in one request. */
export const MOST_KEYS = 1_000;

/** Tables that other parts of the server own: spans are erased as traces. */
const isOwned = (name: string) => name.startsWith("crannog.");

/** All tables that a person may have rows in, with their columns. */
export async function searchableTables(signal?: AbortSignal): Promise<TableDescription[]> {
  const names = (await listTables(false, signal)).filter((name) => !isOwned(name));
  return Promise.all(names.map((name) => describeTable(name, signal)));
}

/** Returns a value in the type of a column, or undefined if it cannot be one. */
export function valueFor(type: string, text: string): string | bigint | number | boolean | undefined {
  const trimmed = text.trim();
  if (/^u?int/.test(type)) return /^-?\d{1,20}$/.test(trimmed) ? BigInt(trimmed) : undefined;
  if (/^(float|double|decimal)/.test(type)) return /^-?\d+(\.\d+)?$/.test(trimmed) ? Number(trimmed) : undefined;
  if (/^bool/.test(type)) return undefined;
  return trimmed;
}

/** Looks for a person in tables by columns, and in traces by attributes, of the names of the identifiers. */
export async function find(
  identifiers: readonly Identifier[],
  tables: readonly TableDescription[],
  inTraces: boolean,
  signal?: AbortSignal,
): Promise<Found> {
  const failed: Found["failed"] = [];
  const keyless: string[] = [];
  const asked = tables.map(async (table) => {
    try {
      const found = await findInTable(identifiers, table, signal);
      if (found && table.key.length === 0) keyless.push(table.name);
      return found && table.key.length > 0 ? found : null;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      failed.push({ table: table.name, message: error.message });
      return null;
    }
  });
  const [found, traces] = await Promise.all([
    Promise.all(asked),
    inTraces ? findTraces(identifiers, signal) : Promise.resolve(null),
  ]);
  return { tables: found.filter((each) => each !== null), traces, failed, looked: tables.length, keyless };
}

async function findInTable(
  identifiers: readonly Identifier[],
  table: TableDescription,
  signal?: AbortSignal,
): Promise<FoundInTable | null> {
  const keys = new Map<string, Key>();
  const by: string[] = [];
  let more = false;
  for (const { name, value } of identifiers) {
    const column = table.columns.find((each) => each.name === name);
    const typed = column && valueFor(column.type, value);
    if (typed === undefined) continue;
    const shown = table.key.length ? table.key : [name];
    // Raw, so that rows which were hidden before are found too.
    const query = { where: [writeJson([name, "=", typed])], column: shown, limit: MOST_KEYS + 1, raw: true };
    const rows = (await get("/api/v1/tables/{name}/rows", { path: { name: table.name }, query, signal })) as Key[];
    if (rows.length) by.push(name);
    more ||= rows.length > MOST_KEYS;
    for (const row of rows.slice(0, MOST_KEYS)) keys.set(writeJson(row), row);
  }
  if (keys.size === 0) return null;
  return { table: table.name, keyColumns: table.key, keys: [...keys.values()], more, by };
}

interface Plan {
  traces: number;
  spans: number;
  services: Record<string, number>;
  days: Record<string, number>;
}

async function findTraces(identifiers: readonly Identifier[], signal?: AbortSignal): Promise<FoundTraces | null> {
  const found: FoundTraces = { traces: 0, spans: 0, services: {}, days: {}, filters: [], by: [] };
  for (const { name, value } of identifiers) {
    const number = /^-?\d{1,15}$/.test(value.trim()) ? [Number(value)] : [];
    const where = { [name]: [value.trim(), ...number] };
    if (!(await anyTrace(where, signal))) continue;
    const answer = await post("/api/v1/traces/erase", { body: { where, dry_run: true }, signal });
    const plan = answer as unknown as Plan;
    found.traces += plan.traces;
    found.spans += plan.spans;
    for (const [service, spans] of Object.entries(plan.services))
      found.services[service] = (found.services[service] ?? 0) + spans;
    for (const [day, spans] of Object.entries(plan.days)) found.days[day] = (found.days[day] ?? 0) + spans;
    found.filters.push(where);
    found.by.push(name);
  }
  return found.traces ? found : null;
}

/** Whether a trace has such a span; an erasure of none, even a dry run, is an error. */
async function anyTrace(attributes: Record<string, (string | number)[]>, signal?: AbortSignal): Promise<boolean> {
  const page = await post("/api/v1/traces/search", { body: { attributes, limit: 1 }, signal });
  return (page as unknown as { traces: unknown[] }).traces.length > 0;
}

interface Why {
  actor: string;
  reason: string;
}

/** Hides rows from every query of this server at once; they leave the files with the next fold. */
export async function hide(found: FoundInTable, why: Why): Promise<void> {
  await post("/api/v1/tables/{name}/delete", { path: { name: found.table }, body: { keys: found.keys, ...why } });
}

type Progress = (step: string, share: number) => void;

/** Erases rows of a table from every file, and proves it. */
export async function eraseRows(found: FoundInTable, why: Why, erasureId: string, progress: Progress): Promise<void> {
  const body = { keys: found.keys, ...why, erasure_id: erasureId };
  await lastOf(postLines("/api/v1/tables/{name}/erase", { path: { name: found.table }, body }), progress);
}

/** Erases whole traces; a filter whose traces went with an earlier one is done already. */
export async function eraseTraces(found: FoundTraces, why: Why, erasureId: string, progress: Progress): Promise<void> {
  for (const [index, where] of found.filters.entries()) {
    try {
      await lastOf(
        postLines("/api/v1/traces/erase", { body: { where, ...why, erasure_id: erasureId } }),
        (step, share) => progress(step, (index + share) / found.filters.length),
      );
    } catch (error) {
      if (index === 0 || !(error instanceof ApiError) || error.code !== "not_found") throw error;
    }
  }
}

export function listReceipts(limit: number, signal?: AbortSignal): Promise<Receipt[]> {
  return get("/api/v1/receipts", { query: { limit }, signal }) as Promise<unknown> as Promise<Receipt[]>;
}

export function getReceipt(id: string, signal?: AbortSignal): Promise<Receipt> {
  return get("/api/v1/receipts/{erasure_id}", {
    path: { erasure_id: id },
    signal,
  }) as Promise<unknown> as Promise<Receipt>;
}

/** A new id for an erasure. Browsers offer `randomUUID` over https alone. */
export function newErasureId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
