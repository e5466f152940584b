/** Who uses the pages, and what they may do. */

import { signal } from "@preact/signals";
import { get, onUnauthorized, post, remove, type AnswerOf } from "./client";

export type Session = AnswerOf<"GET /api/v1/session">;
export type Level = "read" | "write" | "admin";

const LEVELS: readonly string[] = ["read", "write", "admin"];

/** The session as the server last described it; null before its first answer. */
export const session = signal<Session | null>(null);

export async function loadSession(): Promise<void> {
  session.value = await get("/api/v1/session");
}

export async function signIn(token: string): Promise<void> {
  session.value = await post("/api/v1/session", { body: { token } });
}

export async function signOut(): Promise<void> {
  session.value = await remove("/api/v1/session");
}

// A session that ended, or a token that was revoked: the sign-in shows.
onUnauthorized.call = () => {
  if (session.value?.signed_in) session.value = { ...session.value, signed_in: false, scopes: [] };
};

/**
 * Whether the token allows something on a table, `catalog.schema.table`; without a table, on all of them.
 *
 * The server checks again: this only decides which buttons are shown.
 */
export function may(level: Level, table?: string): boolean {
  const [catalog, schema] = (table ?? "").split(".");
  return (session.value?.scopes ?? []).some((scope) => {
    const [has = "", place] = scope.split(":");
    if (LEVELS.indexOf(has) < LEVELS.indexOf(level)) return false;
    if (place === undefined) return true;
    const [itsCatalog, itsSchema] = place.split(".");
    return itsCatalog === catalog && (itsSchema === undefined || itsSchema === schema);
  });
}

/** Whether the token allows something somewhere: which pages are offered. */
export function mayAnywhere(level: Level): boolean {
  return (session.value?.scopes ?? []).some((scope) => LEVELS.indexOf(scope.split(":")[0]!) >= LEVELS.indexOf(level));
}
