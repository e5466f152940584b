/**
 * What changed on the server, as it happens, by server-sent events: one connection for the whole page, and only while it is
 * visible, because a browser has few connections to a server and many tabs.
 */

import { addressOf } from "./client";
import { parseJson } from "./json";

type Listener = (tables: ReadonlySet<string>) => void;

const listeners = new Set<Listener>();
let source: EventSource | undefined;

export const SPANS = "crannog.traces.spans";
export const BUILD_EVENTS = "crannog.builds.build_events";

function connect(): void {
  const wanted = listeners.size > 0 && document.visibilityState === "visible";
  if (!wanted) {
    source?.close();
    source = undefined;
  } else if (!source || source.readyState === EventSource.CLOSED) {
    source = new EventSource(addressOf("/api/v1/changes"));
    source.onmessage = (event: MessageEvent<string>) => {
      const tables = new Set((parseJson(event.data) as { tables: string[] }).tables);
      for (const listener of listeners) listener(tables);
    };
  }
}

document.addEventListener("visibilitychange", connect);
// Otherwise the browser may keep the page, and its connection, after one has left it.
window.addEventListener("pagehide", () => source?.close());

/** Calls a function with the tables that changed, until the returned function is called. */
export function onChanges(listener: Listener): () => void {
  listeners.add(listener);
  connect();
  return () => {
    listeners.delete(listener);
    // A page that follows may come next: do not hang up in between.
    setTimeout(connect, 1_000);
  };
}
