/** The audit: a row for each request that the server answered, or for those of a minute. */

import { getRaw } from "./client";
import { parseJson, writeJson } from "./json";

export interface AuditEntry {
  time: string;
  request_id: string;
  who: string;
  address: string | null;
  verb: string;
  table: string | null;
  rows: number | null;
  sql: string | null;
  status: number;
  elapsed_ms: number;
  error: string | null;
  /** More than one if the entry sums up the requests of a minute; null in entries of earlier versions. */
  requests: number | null;
}

export interface AuditPage {
  entries: AuditEntry[];
  next: string | null;
  previous: string | null;
}

export interface AuditFilter {
  who: string;
  verb: string;
  table: string;
  failed: boolean;
  start: string | null;
  end: string | null;
}

const NAME = "crannog.system.audit";

/** A page of the audit, newest first. */
export async function pageAudit(
  filter: AuditFilter,
  page: { limit: number; after?: string | undefined; before?: string | undefined },
  signal?: AbortSignal,
): Promise<AuditPage> {
  const where = [
    ...(filter.who ? [["who", "icontains", filter.who]] : []),
    ...(filter.verb ? [["verb", "icontains", filter.verb]] : []),
    ...(filter.table ? [["table", "icontains", filter.table]] : []),
    ...(filter.failed ? [["status", ">=", 400]] : []),
    ...(filter.start ? [["time", ">=", filter.start]] : []),
    ...(filter.end ? [["time", "<", filter.end]] : []),
  ].map((each) => writeJson(each));
  const response = await getRaw("/api/v1/tables/{name}/rows", "application/json", {
    path: { name: NAME },
    query: { order: "-time", limit: page.limit, after: page.after, before: page.before, where },
    signal,
  });
  return {
    entries: parseJson(await response.text()) as AuditEntry[],
    next: response.headers.get("crannog-next-cursor"),
    previous: response.headers.get("crannog-previous-cursor"),
  };
}
