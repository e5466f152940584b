/** Rows that a person looks for: found by the server, of one operation, or on the critical path. */

import { useMemo } from "preact/hooks";
import type { ApiError } from "../../api/errors";
import { findInTrace } from "../../api/trace";
import { useAnswer } from "../../api/useAnswer";
import { CRITICAL, rowsOf, rowsWith, withAncestors, type Tree } from "./tree";

export interface Wanted {
  text: string;
  /** Whether the text is a filter in the language of searches. */
  isFilter: boolean;
  /** Leave out what neither matches nor has matches below it. */
  only: boolean;
  service: string;
  operation: string;
  critical: boolean;
}

export interface Matches {
  /** The rows, ascending; null if nothing is looked for. */
  rows: Uint32Array | null;
  /** More than the rows if there are very many. */
  total: number;
  /** 1 for rows that match: for the marks on the rows. */
  marked: Uint8Array | null;
  /** The rows to show: those and their ancestors; null shows all. */
  kept: Uint8Array | null;
  loading: boolean;
  error: ApiError | undefined;
}

export function useMatches(traceId: string, tree: Tree | null, isWhole: boolean, wanted: Wanted): Matches {
  const { text, isFilter, only, service, operation, critical } = wanted;
  const found = useAnswer(
    (signal) => findInTrace(traceId, isFilter ? { where: text } : { text }, signal),
    [traceId, text, isFilter],
    {
      when: text !== "",
    },
  );
  const answer = text === "" || found.error ? undefined : found.data;
  const chosen = useMemo(() => {
    const none = { rows: null, total: 0, marked: null, kept: null };
    if (!tree || !isWhole) return none;
    const sets: Uint32Array[] = [];
    if (operation) sets.push(rowsOf(tree, service, operation));
    if (critical) sets.push(rowsWith(tree, CRITICAL));
    const filters = sets.length > 0;
    if (answer) sets.push(answer.matches);
    if (sets.length === 0) return none;
    const rows = sets.reduce(common);
    const marked = new Uint8Array(tree.rows);
    for (const row of rows) marked[row] = 1;
    const total = sets.length === 1 && answer ? answer.total : rows.length;
    return { rows, total, marked, kept: filters || only ? withAncestors(tree, rows) : null };
  }, [tree, isWhole, answer, only, service, operation, critical]);
  return { ...chosen, loading: found.loading, error: text === "" ? undefined : found.error };
}

/** Returns what is in both of two ascending lists. */
function common(left: Uint32Array, right: Uint32Array): Uint32Array {
  const both = new Uint32Array(Math.min(left.length, right.length));
  let count = 0;
  for (let a = 0, b = 0; a < left.length && b < right.length;) {
    const difference = left[a]! - right[b]!;
    if (difference === 0) both[count++] = left[a]!;
    if (difference <= 0) a++;
    if (difference >= 0) b++;
  }
  return both.slice(0, count);
}
