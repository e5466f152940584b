/** Arrow tables: read once, used by columns. Loaded only where a page asks for Arrow. */

import { tableFromIPC, type Table } from "@uwdata/flechette";

/** Reads a stream of Arrow; 64-bit integers are BigInt, times stay in their own unit. */
export function readTable(bytes: ArrayBuffer): Table {
  return tableFromIPC(new Uint8Array(bytes), { useBigInt: true, useDate: false });
}

export type { Table };
