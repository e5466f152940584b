/** Where the browser is, below the root of the server: one signal that all pages read, and the ways to change it. */

import { computed, signal } from "@preact/signals";
import { root } from "../api/client";

export interface Place {
  /** The path below the root, without slashes at its ends: `traces/4bf9…`. */
  path: string;
  query: URLSearchParams;
}

const HISTORY_MS = 250;

function current(): Place {
  const below = location.pathname.startsWith(root.pathname) ? location.pathname.slice(root.pathname.length) : "";
  return { path: below.replace(/^\/+|\/+$/g, ""), query: new URLSearchParams(location.search) };
}

export const place = signal<Place>(current());
export const path = computed(() => place.value.path);

type QueryValue = string | number | bigint | boolean | null | undefined | readonly string[];

/**
 * Returns a link to a page, for `href`: its parts, and its query as the last argument.
 *
 *     <a href={to("traces", trace.trace_id, { span: span.span_id })}>
 */
export function to(...parts: [...(string | number)[], Record<string, QueryValue>] | (string | number)[]): string {
  const last = parts[parts.length - 1];
  const query = new URLSearchParams();
  if (typeof last === "object") {
    for (const [name, value] of Object.entries(last as Record<string, QueryValue>)) {
      if (value === undefined || value === null || value === "" || value === false) continue;
      for (const each of Array.isArray(value) ? value : [value]) query.append(name, String(each));
    }
  }
  const segments = (typeof last === "object" ? parts.slice(0, -1) : parts) as (string | number)[];
  const text = segments.map((segment) => encodeURIComponent(String(segment))).join("/");
  // An empty href would be the address of the document, which is that of the page on which it was loaded.
  return (text || "./") + (query.size ? `?${query}` : "");
}

let timer: ReturnType<typeof setTimeout> | undefined;

function write(): void {
  clearTimeout(timer);
  timer = undefined;
  const { path: below, query } = place.value;
  const address = new URL(root.pathname + below + (query.size ? `?${query}` : ""), root);
  if (address.href !== location.href) history.replaceState(history.state, "", address);
}

/** Goes to a link of `to`, with an entry in the browser's history. */
export function go(href: string): void {
  if (timer !== undefined) write();
  const address = new URL(href, root);
  history.pushState(null, "", address);
  place.value = current();
  window.scrollTo(0, 0);
}

/** Changes the query of the page: at once for the page, a little later in the address bar, since browsers limit that. */
export function setQuery(query: URLSearchParams, push: boolean): void {
  if (push) {
    if (timer !== undefined) write();
    place.value = { path: place.value.path, query };
    const address = new URL(root.pathname + place.value.path + (query.size ? `?${query}` : ""), root);
    history.pushState(null, "", address);
    return;
  }
  place.value = { path: place.value.path, query };
  clearTimeout(timer);
  timer = setTimeout(write, HISTORY_MS);
}

/** Follows the browser's buttons, and makes links within the pages load nothing. */
export function startRouter(): void {
  window.addEventListener("popstate", () => {
    clearTimeout(timer);
    timer = undefined;
    place.value = current();
  });
  window.addEventListener("pagehide", () => timer !== undefined && write());
  document.addEventListener("click", (event) => {
    if (
      event.defaultPrevented ||
      event.button !== 0 ||
      event.metaKey ||
      event.ctrlKey ||
      event.shiftKey ||
      event.altKey
    )
      return;
    const link = (event.target as Element).closest?.("a[href]");
    if (!(link instanceof HTMLAnchorElement) || link.target || link.hasAttribute("download")) return;
    const isPage = link.origin === root.origin && link.pathname.startsWith(root.pathname);
    if (!isPage || /^(api|query)\//.test(link.pathname.slice(root.pathname.length))) return;
    event.preventDefault();
    go(link.href);
  });
}
