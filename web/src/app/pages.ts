/** The pages: each folder of `src/pages` has a `route.ts` that says where it is and how it is loaded. */

import type { ComponentType } from "preact";
import type { Level } from "../api/session";

export type Params = Record<string, string>;

export interface PageProps {
  /** The parts of the path that the route names, such as `traceId`. */
  params: Params;
}

export interface PageRoute {
  /** Below the root; `:name` is any one part. The first part must be in `PAGES` of `server/routes/pages.py`. */
  path: string;
  /** The title of the browser's tab; a page whose title depends on its data sets it by `useTitle`. */
  title: string;
  /** The module of the page; its default export is the component. */
  load: () => Promise<{ default: ComponentType<PageProps> }>;
  /** A place in the navigation; lower comes first. */
  nav?: { label: string; group: Group; order: number; key?: string };
  /** The right that makes the page worth offering; `read` unless it says otherwise. */
  needs?: Level;
}

export const GROUPS = ["Traces", "Data", "Builds", "Operate"] as const;
export type Group = (typeof GROUPS)[number] | "";

const found = import.meta.glob<{ routes: PageRoute[] }>("../pages/*/route.ts", { eager: true });

export const pages: PageRoute[] = Object.values(found).flatMap((module) => module.routes);

const patterns = pages.map((page) => {
  const parts = page.path.split("/").map((part) => (part.startsWith(":") ? `(?<${part.slice(1)}>[^/]+)` : part));
  return { page, pattern: new RegExp(`^${parts.join("/")}$`), fixed: !page.path.includes(":") };
});
// `traces/compare` comes before `traces/:traceId`.
patterns.sort((left, right) => Number(right.fixed) - Number(left.fixed));

/** Returns the page at a path with its path parameters; undefined if no page matches. */
export function pageAt(path: string): { page: PageRoute; params: Params } | undefined {
  for (const { page, pattern } of patterns) {
    const match = pattern.exec(path);
    if (match) {
      const params: Params = {};
      for (const [name, value] of Object.entries(match.groups ?? {})) params[name] = decoded(value);
      return { page, params };
    }
  }
  return undefined;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
