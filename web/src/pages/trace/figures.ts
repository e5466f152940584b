/** What a worker computes of a tree: figures by operation, and a picture of the whole trace. */

import { ERROR, type Tree } from "./tree";

/** An entry for each pair of service and operation; times in microseconds. */
export interface Operations {
  service: Uint32Array;
  name: Uint32Array;
  count: Uint32Array;
  errors: Uint32Array;
  total: Float64Array;
  self: Float64Array;
  median: Float64Array;
  most: Float64Array;
}

/** Computes the time of each span in which no child ran. Siblings are sorted by start, so one pass is enough. */
export function selfTimes({ rows, parent, start, duration }: Tree): Float64Array {
  const self = new Float64Array(rows);
  const covered = new Float64Array(rows);
  for (let row = 0; row < rows; row++) {
    self[row] = duration[row]!;
    covered[row] = start[row]!;
    const above = parent[row]!;
    if (above < 0) continue;
    const from = Math.max(start[row]!, covered[above]!);
    const until = Math.min(start[row]! + duration[row]!, start[above]! + duration[above]!);
    if (until <= from) continue;
    self[above]! -= until - from;
    covered[above] = until;
  }
  return self;
}

export function operationsOf(tree: Tree): Operations {
  const { rows, names } = tree;
  const groups = new Map<number, number>();
  const group = new Uint32Array(rows);
  for (let row = 0; row < rows; row++) {
    const key = tree.service[row]! * names.length + tree.name[row]!;
    let found = groups.get(key);
    if (found === undefined) groups.set(key, (found = groups.size));
    group[row] = found;
  }
  const size = groups.size;
  const [count, errors] = [new Uint32Array(size), new Uint32Array(size)];
  const [total, self, median, most] = [0, 1, 2, 3].map(() => new Float64Array(size)) as [
    Float64Array,
    Float64Array,
    Float64Array,
    Float64Array,
  ];
  const own = selfTimes(tree);
  for (let row = 0; row < rows; row++) {
    const at = group[row]!;
    count[at]!++;
    if (tree.flags[row]! & ERROR) errors[at]!++;
    total[at]! += tree.duration[row]!;
    self[at]! += own[row]!;
  }
  // The durations of each group side by side, to sort each.
  const from = new Uint32Array(size + 1);
  for (let at = 0; at < size; at++) from[at + 1] = from[at]! + count[at]!;
  const next = from.slice(0, size);
  const sorted = new Float64Array(rows);
  for (let row = 0; row < rows; row++) sorted[next[group[row]!]!++] = tree.duration[row]!;
  for (let at = 0; at < size; at++) {
    const part = sorted.subarray(from[at], from[at + 1]).sort();
    median[at] = part[(part.length - 1) >> 1]!;
    most[at] = part[part.length - 1]!;
  }
  const [service, name] = [new Uint32Array(size), new Uint32Array(size)];
  for (const [key, at] of groups) [service[at], name[at]] = [Math.floor(key / names.length), key % names.length];
  return { service, name, count, errors, total, self, median, most };
}

/** How many spans run at each time, for bands of rows from the first to the last: a picture of the whole trace. */
export interface Picture {
  width: number;
  height: number;
  /** 0 to 255 by how many spans run there; rows of `width`. */
  density: Uint8Array;
  /** Spans with errors that start in each column. */
  errors: Uint32Array;
}

export const PICTURE = { width: 800, height: 48 };

export function pictureOf({ rows, start, duration, flags, length }: Tree): Picture {
  const { width, height } = PICTURE;
  // Each span adds one where it starts and takes one away where it ends: the sums along a row are how many run.
  const change = new Int32Array((width + 1) * height);
  const errors = new Uint32Array(width);
  const scale = width / length;
  for (let row = 0; row < rows; row++) {
    const from = Math.min(width - 1, Math.max(0, Math.floor(start[row]! * scale)));
    const until = Math.min(width - 1, Math.max(from, Math.floor((start[row]! + duration[row]!) * scale)));
    const line = Math.floor((row * height) / rows) * (width + 1);
    change[line + from]!++;
    change[line + until + 1]!--;
    if (flags[row]! & ERROR) errors[from]!++;
  }
  let most = 1;
  for (let line = 0; line < height; line++) {
    for (let column = 1, at = line * (width + 1) + 1; column < width; column++, at++) {
      change[at]! += change[at - 1]!;
      if (change[at]! > most) most = change[at]!;
    }
  }
  const density = new Uint8Array(width * height);
  for (let line = 0; line < height; line++)
    for (let column = 0; column < width; column++) {
      const running = change[line * (width + 1) + column]!;
      if (running > 0) density[line * width + column] = 60 + Math.round((195 * Math.log1p(running)) / Math.log1p(most));
    }
  return { width, height, density, errors };
}
