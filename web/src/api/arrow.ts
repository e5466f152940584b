/** Arrow tables: read once, used by columns. Loaded only where a page asks for Arrow. */

import { tableFromIPC, type Table } from "@uwdata/flechette";

/** Reads a stream of Arrow; 64-bit integers are BigInt, decimals whole numbers of their scale. `format/cells.ts` shows values exactly. */
export function readTable(bytes: ArrayBuffer): Table {
  return tableFromIPC(new Uint8Array(bytes), { useBigInt: true, useDate: false, useDecimalInt: true });
}

export type { Table };
