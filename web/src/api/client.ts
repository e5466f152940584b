/**
 * Requests to the server, typed by its OpenAPI document (`routes.ts` is generated from it).
 *
 * A page calls the functions of `tables.ts`, `traces.ts`, `builds.ts`…, which call these.
 */

import type { Table } from "@uwdata/flechette";
import { errorOf } from "./errors";
import { parseJson, writeJson } from "./json";
import { lines } from "./lines";
import type { Routes } from "./routes";

type Method = "GET" | "POST" | "PUT" | "DELETE";
/** The paths that take a method. */
export type PathOf<M extends Method> = {
  [R in keyof Routes]: R extends `${M} ${infer P}` ? P : never;
}[keyof Routes];
type RouteOf<M extends Method, P extends string> = `${M} ${P}` extends keyof Routes ? Routes[`${M} ${P}`] : never;
/** What a route takes in its query string, its body or its path. */
export type QueryOf<R extends keyof Routes> = Routes[R] extends { query: infer Q } ? Q : Record<never, never>;
export type BodyOf<R extends keyof Routes> = Routes[R] extends { body: infer B } ? B : undefined;
export type AnswerOf<R extends keyof Routes> = Routes[R] extends { answer: infer A } ? A : unknown;

type Part<R, K extends string> =
  R extends Record<K, infer V>
    ? Record<never, never> extends V
      ? { [k in K]?: V }
      : { [k in K]: V }
    : { [k in K]?: undefined };
/** `raw` is a body that is not JSON: a file, rows as text, Arrow. */
type Options<R> = Part<R, "path"> & Part<R, "query"> & Part<R, "body"> & Common;
interface Common {
  signal?: AbortSignal | undefined;
  headers?: Record<string, string>;
  raw?: BodyInit;
}

/** The root of the server, under whatever prefix it is served. */
export const root = new URL(document.baseURI);

/** Called when an answer says that nobody is signed in. */
export const onUnauthorized = { call: () => {} };

/** Returns the address of a request, to fetch or to link to. */
export function addressOf(path: string, parameters?: object, query?: object): URL {
  const filled = path.replace(/\{(\w+)\}/g, (_found, name: string) =>
    encodeURIComponent(String((parameters as Record<string, unknown>)[name])),
  );
  const address = new URL(filled.replace(/^\//, ""), root);
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value === undefined || value === null || value === "") continue;
    for (const each of Array.isArray(value) ? value : [value]) address.searchParams.append(name, String(each));
  }
  return address;
}

async function send(method: Method, path: string, accept: string, options: Loose): Promise<Response> {
  const headers: Record<string, string> = { Accept: accept, ...options.headers };
  let body = options.raw;
  if (options.body !== undefined) {
    headers["Content-Type"] = "application/json";
    body = writeJson(options.body);
  }
  const response = await fetch(addressOf(path, options.path, options.query), {
    method,
    headers,
    body: body ?? null,
    signal: options.signal ?? null,
    credentials: "same-origin",
  });
  if (response.ok) return response;
  if (response.status === 401) onUnauthorized.call();
  throw await errorOf(response);
}

type Loose = Common & { path?: object; query?: object; body?: unknown };
const loose = (given: readonly unknown[]): Loose => (given[0] ?? {}) as Loose;
type Given<M extends Method, P extends PathOf<M>> =
  Record<never, never> extends Options<RouteOf<M, P>> ? [options?: Options<RouteOf<M, P>>] : [Options<RouteOf<M, P>>];
type Answer<M extends Method, P extends PathOf<M>> = RouteOf<M, P> extends { answer: infer A } ? A : unknown;

async function json<M extends Method, P extends PathOf<M>>(
  method: M,
  path: P,
  ...given: Given<M, P>
): Promise<Answer<M, P>> {
  const response = await send(method, path, "application/json", loose(given));
  return parseJson(await response.text()) as Answer<M, P>;
}

/** Asks for JSON. Whole numbers beyond 2^53 are BigInt. */
export function get<P extends PathOf<"GET">>(path: P, ...given: Given<"GET", P>): Promise<Answer<"GET", P>> {
  return json("GET", path, ...given);
}

export function post<P extends PathOf<"POST">>(path: P, ...given: Given<"POST", P>): Promise<Answer<"POST", P>> {
  return json("POST", path, ...given);
}

export function put<P extends PathOf<"PUT">>(path: P, ...given: Given<"PUT", P>): Promise<Answer<"PUT", P>> {
  return json("PUT", path, ...given);
}

export function remove<P extends PathOf<"DELETE">>(
  path: P,
  ...given: Given<"DELETE", P>
): Promise<Answer<"DELETE", P>> {
  return json("DELETE", path, ...given);
}

const ARROW = "application/vnd.apache.arrow.stream";

/** Asks for an Arrow table; the reader of Arrow is loaded when it is first needed. */
export async function getArrow<P extends PathOf<"GET">>(path: P, ...given: Given<"GET", P>): Promise<Table> {
  const response = await send("GET", path, ARROW, loose(given));
  return (await import("./arrow")).readTable(await response.arrayBuffer());
}

export async function postArrow<P extends PathOf<"POST">>(path: P, ...given: Given<"POST", P>): Promise<Table> {
  const response = await send("POST", path, ARROW, loose(given));
  return (await import("./arrow")).readTable(await response.arrayBuffer());
}

/** Asks for a response as it is: to read its headers, its stream or its bytes. */
export async function getRaw<P extends PathOf<"GET">>(
  path: P,
  accept: string,
  ...given: Given<"GET", P>
): Promise<Response> {
  return send("GET", path, accept, loose(given));
}

export async function postRaw<P extends PathOf<"POST">>(
  path: P,
  accept: string,
  ...given: Given<"POST", P>
): Promise<Response> {
  return send("POST", path, accept, loose(given));
}

/** Asks for lines of JSON and yields each as it comes: the progress of a job, events that follow. */
export async function* postLines<P extends PathOf<"POST">>(
  path: P,
  ...given: Given<"POST", P>
): AsyncGenerator<unknown> {
  const response = await send("POST", path, "application/x-ndjson", loose(given));
  if (response.body === null) return;
  for await (const line of lines(response.body)) yield parseJson(line);
}
