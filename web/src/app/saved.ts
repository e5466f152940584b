/** What a person saved in this browser by a name: searches, queries. */

import { signal, type Signal } from "@preact/signals";

export interface Saved {
  name: string;
  /** The query of an address, without its question mark. */
  query: string;
}

const kept = new Map<string, Signal<readonly Saved[]>>();

function read(key: string): Saved[] {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(key) ?? "[]");
    if (!Array.isArray(found)) return [];
    return found.filter((each) => typeof each?.name === "string" && typeof each?.query === "string") as Saved[];
  } catch {
    // Blocked, or written by something else.
    return [];
  }
}

/** Returns the saved ones of a kind, in the order of their names, and how to change them. */
export function savedOf(kind: string) {
  const key = `crannog.saved.${kind}`;
  if (!kept.has(key)) kept.set(key, signal(read(key)));
  const all = kept.get(key)!;
  const write = (next: Saved[]) => {
    all.value = next.toSorted((left, right) => left.name.localeCompare(right.name));
    try {
      localStorage.setItem(key, JSON.stringify(all.value));
    } catch {
      // Storage is blocked or full: it lasts as long as the page.
    }
  };
  return {
    all,
    /** Saves under a name; replaces what had it. */
    save: (name: string, query: string) => write([...all.value.filter((each) => each.name !== name), { name, query }]),
    rename: (from: string, name: string) =>
      write(
        all.value
          .filter((each) => each.name !== name || from === name)
          .map((each) => (each.name === from ? { ...each, name } : each)),
      ),
    remove: (name: string) => write(all.value.filter((each) => each.name !== name)),
  };
}
