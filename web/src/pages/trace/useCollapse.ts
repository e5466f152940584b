/** Which rows are closed: all of a level, and rows that a person opened or closed. Kept in the address while it is short. */

import { useCallback, useMemo, useRef, useState } from "preact/hooks";
import { closeToLevel, type Tree } from "./tree";

const MOST_KEPT = 150;

export interface Collapse {
  closed: Uint8Array;
  /** Changes with `closed`, which is changed in place. */
  version: number;
  toggle: (row: number) => void;
  set: (row: number, isClosed: boolean) => void;
  /** Opens or closes everything below a row; the row itself too. */
  setBelow: (row: number, isClosed: boolean) => void;
  /** Opens the ancestors of rows, so that they can be seen. */
  reveal: (row: number) => void;
  level: number;
  setLevel: (level: number) => void;
}

interface Kept {
  level: number;
  /** Rows that differ from their level, as `3.17.20`. */
  rows: string;
}

export function useCollapse(tree: Tree | null, kept: Kept, keep: (kept: Kept) => void): Collapse {
  const [version, setVersion] = useState(0);
  const changed = useRef<Set<number>>(new Set());
  const level = useRef(kept.level);
  const closed = useMemo(() => {
    const made = new Uint8Array(tree?.rows ?? 0);
    if (!tree) return made;
    if (level.current > 0) closeToLevel(tree, made, level.current);
    changed.current = new Set(kept.rows.split(".").filter(Boolean).map(Number));
    for (const row of changed.current) if (row < tree.rows) made[row] = 1 - made[row]!;
    return made;
  }, [tree]);

  const done = useCallback(() => {
    setVersion((before) => before + 1);
    const rows = changed.current.size <= MOST_KEPT ? [...changed.current].sort((a, b) => a - b).join(".") : "";
    keep({ level: level.current, rows });
  }, [keep]);
  const put = useCallback(
    (row: number, isClosed: boolean) => {
      if (!tree || tree.end[row]! <= row + 1 || (closed[row] === 1) === isClosed) return;
      closed[row] = isClosed ? 1 : 0;
      // Beyond that many the address cannot keep them: no use in remembering each.
      if (changed.current.size > MOST_KEPT) return;
      if (!changed.current.delete(row)) changed.current.add(row);
    },
    [tree, closed],
  );
  return {
    closed,
    version,
    level: level.current,
    toggle: (row) => {
      put(row, closed[row] !== 1);
      done();
    },
    set: (row, isClosed) => {
      put(row, isClosed);
      done();
    },
    setBelow: (row, isClosed) => {
      for (let at = row; tree && at < tree.end[row]!; at++) put(at, isClosed);
      done();
    },
    reveal: (row) => {
      if (!tree) return;
      let any = false;
      for (let at = tree.parent[row]!; at >= 0; at = tree.parent[at]!) {
        any ||= closed[at] === 1;
        put(at, false);
      }
      if (any) done();
    },
    setLevel: (wanted) => {
      if (!tree) return;
      level.current = wanted;
      changed.current = new Set();
      closeToLevel(tree, closed, wanted);
      done();
    },
  };
}
