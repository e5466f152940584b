/**
 * The tree of a trace in typed arrays, a row for each span in pre-order: never an object for a span.
 *
 * A page of a million spans stays within some tens of megabytes, and what is on the screen is computed anew at each change.
 */

export const ERROR = 1;
export const ROOT = 2;
export const ORPHAN = 4;
export const CYCLE = 8;
export const EARLY = 16;
export const LATE = 32;
export const CRITICAL = 64;

export type Numbers = Uint8Array | Uint16Array | Uint32Array | Float64Array;

/** What the server sends: columns of all rows. Times are microseconds from the start of the trace. */
export interface Columns {
  depth: Numbers;
  start: Numbers;
  duration: Numbers;
  name: Numbers;
  service: Numbers;
  flags: Uint8Array;
  names: string[];
  services: string[];
}

/** The columns, with what follows from them. */
export interface Tree extends Columns {
  rows: number;
  /** The row of the parent, -1 for the top; and the row after the last of the subtree. */
  parent: Int32Array;
  end: Uint32Array;
  /** The row of the flame graph in which a span is drawn. */
  lane: Uint16Array;
  lanes: number;
  /** Microseconds from the start to the end of the trace. */
  length: number;
}

/** Computes parents and ends of subtrees from the depths. */
export function treeOf(columns: Columns, length: number): Tree {
  const rows = columns.depth.length;
  const parent = new Int32Array(rows);
  const end = new Uint32Array(rows);
  const open: number[] = [];
  for (let row = 0; row < rows; row++) {
    const depth = columns.depth[row]!;
    while (open.length > depth) end[open.pop()!] = row;
    parent[row] = open.length ? open[open.length - 1]! : -1;
    open.push(row);
  }
  while (open.length) end[open.pop()!] = rows;
  const { lane, lanes } = lanesOf(columns, parent, end);
  return { ...columns, rows, parent, end, lane, lanes, length: Math.max(1, length) };
}

const MOST_LANES = 512;

/**
 * Places spans in the lanes of a flame graph, so that nesting reads as it is: a span with children goes below everything that
 * runs when it starts, one without into the first free lane that is not below another's children.
 */
function lanesOf(
  { start, duration }: Columns,
  parent: Int32Array,
  end: Uint32Array,
): { lane: Uint16Array; lanes: number } {
  const rows = parent.length;
  const lane = new Uint16Array(rows);
  const until = new Float64Array(MOST_LANES).fill(-1);
  // Whether the last span of a lane has children.
  const branches = new Uint8Array(MOST_LANES);
  let lanes = 0;
  for (let row = 0; row < rows; row++) {
    const above = parent[row]! < 0 ? -1 : lane[parent[row]!]!;
    const begin = start[row]!;
    const isLeaf = end[row]! === row + 1;
    let own = above + 1;
    if (isLeaf) {
      while (
        own < lanes &&
        (until[own]! > begin || (own > above + 1 && branches[own - 1] === 1 && until[own - 1]! > begin))
      )
        own++;
    } else {
      for (own = lanes; own > above + 1 && until[own - 1]! <= begin;) own--;
    }
    own = Math.min(own, MOST_LANES - 1);
    lane[row] = own;
    if (own >= lanes) lanes = own + 1;
    until[own] = Math.max(until[own]!, begin + duration[row]!);
    branches[own] = isLeaf ? 0 : 1;
  }
  return { lane, lanes };
}

/** Returns the rows that are shown: not below a closed row, and of `kept` if that is given. */
export function visibleRows({ rows, end }: Tree, closed: Uint8Array, kept: Uint8Array | null): Uint32Array {
  const shown = new Uint32Array(rows);
  let count = 0;
  for (let row = 0; row < rows;) {
    // The ancestors of what is kept are kept: below a row that is not, nothing is.
    if (kept !== null && kept[row] === 0) {
      row = end[row]!;
      continue;
    }
    shown[count++] = row;
    row = closed[row] === 1 ? end[row]! : row + 1;
  }
  // Far fewer rows than spans: do not hold the rest.
  return count < rows / 2 ? shown.slice(0, count) : shown.subarray(0, count);
}

/** Closes all rows of a level and below, and opens the others; 0 opens all. */
export function closeToLevel({ rows, depth, end }: Tree, closed: Uint8Array, level: number): void {
  for (let row = 0; row < rows; row++)
    closed[row] = level > 0 && depth[row]! >= level - 1 && end[row]! > row + 1 ? 1 : 0;
}

/** Marks rows and all their ancestors. */
export function withAncestors({ parent, rows }: Tree, matches: Uint32Array): Uint8Array {
  const kept = new Uint8Array(rows);
  for (const match of matches) for (let row = match; row >= 0 && kept[row] === 0; row = parent[row]!) kept[row] = 1;
  return kept;
}

/** Returns the rows for which something holds of their flags, or of their operation. */
export function rowsWith({ flags, rows }: Tree, mask: number): Uint32Array {
  const found = new Uint32Array(rows);
  let count = 0;
  for (let row = 0; row < rows; row++) if ((flags[row]! & mask) !== 0) found[count++] = row;
  return found.slice(0, count);
}

export function rowsOf(tree: Tree, service: string, name: string): Uint32Array {
  const [serviceCode, nameCode] = [tree.services.indexOf(service), tree.names.indexOf(name)];
  const found = new Uint32Array(tree.rows);
  let count = 0;
  for (let row = 0; row < tree.rows; row++)
    if (tree.name[row] === nameCode && tree.service[row] === serviceCode) found[count++] = row;
  return found.slice(0, count);
}

/** Returns the place of a row in ascending rows, or the place where it would be, as `-place - 1`. */
export function placeOf(rows: Uint32Array, row: number): number {
  let [low, high] = [0, rows.length - 1];
  while (low <= high) {
    const middle = (low + high) >>> 1;
    if (rows[middle]! < row) low = middle + 1;
    else if (rows[middle]! > row) high = middle - 1;
    else return middle;
  }
  return -low - 1;
}
