/** Reads the skeleton of a trace beside the page: the request, its columns, the tree and its figures. */

import { tableFromIPC, type Column } from "@uwdata/flechette";
import { operationsOf, pictureOf, type Operations, type Picture } from "./figures";
import { treeOf, type Numbers, type Tree } from "./tree";

export interface Loaded {
  tree: Tree;
  operations: Operations;
  picture: Picture;
  facts: Record<string, string>;
  /** Milliseconds of work, without the wait for the server. */
  workMs: number;
}

export type Reply = { loaded: Loaded } | { status: number; body: string };

/** Joins the parts of a column, without a copy if there is one. */
function joined(column: Column<unknown>): Numbers {
  const parts = column.data.map((batch) => (batch.values as Numbers).subarray(0, batch.length) as Numbers);
  if (parts.length === 1) return parts[0]!;
  const first = parts[0] ?? new Uint32Array(0);
  const all = new (first.constructor as Uint32ArrayConstructor)(column.length);
  let at = 0;
  for (const part of parts) {
    all.set(part as Uint32Array, at);
    at += part.length;
  }
  return all;
}

/** Returns the codes of a dictionary column, and what they stand for. */
function coded(column: Column<unknown>): { codes: Numbers; values: string[] } {
  const batch = column.data[0] as unknown as { dictionary?: Column<string> } | undefined;
  return {
    codes: joined(column),
    values: batch?.dictionary ? Array.from(batch.dictionary, (value) => value ?? "") : [],
  };
}

function read(bytes: ArrayBuffer): Loaded {
  const began = performance.now();
  const table = tableFromIPC(new Uint8Array(bytes));
  const facts = Object.fromEntries(table.schema.metadata ?? []);
  const [name, service] = [coded(table.getChild("name")), coded(table.getChild("service"))];
  const length = Number(BigInt(facts.end_ns ?? 0) - BigInt(facts.start_ns ?? 0)) / 1_000;
  const columns = {
    depth: joined(table.getChild("depth")),
    start: joined(table.getChild("start_us")),
    duration: joined(table.getChild("duration_us")),
    name: name.codes,
    names: name.values,
    service: service.codes,
    services: service.values,
    flags: joined(table.getChild("flags")) as Uint8Array,
  };
  const tree = treeOf(columns, length);
  const loaded = { tree, operations: operationsOf(tree), picture: pictureOf(tree), facts };
  return { ...loaded, workMs: performance.now() - began };
}

/** The buffers of all arrays, each once: they are handed over, not copied. */
function buffers(value: object): ArrayBuffer[] {
  const found = new Set<ArrayBuffer>();
  for (const each of Object.values(value)) {
    if (ArrayBuffer.isView(each)) found.add(each.buffer as ArrayBuffer);
    else if (each !== null && typeof each === "object" && !Array.isArray(each))
      buffers(each).forEach((b) => found.add(b));
  }
  return [...found];
}

self.onmessage = async ({ data }: MessageEvent<{ address: string }>) => {
  try {
    const headers = { Accept: "application/vnd.apache.arrow.stream" };
    const response = await fetch(data.address, { headers, credentials: "same-origin" });
    if (!response.ok) {
      self.postMessage({ status: response.status, body: await response.text() } satisfies Reply);
      return;
    }
    const loaded = read(await response.arrayBuffer());
    self.postMessage({ loaded } satisfies Reply, { transfer: buffers(loaded) });
  } catch (thrown) {
    self.postMessage({ status: 0, body: String(thrown) } satisfies Reply);
  }
};
