/** Loading a file: sent as it is, looked through by the server, with progress of both. */

import { addressOf, onUnauthorized, type QueryOf } from "./client";
import { ApiError } from "./errors";
import { parseJson } from "./json";

export type LoadOptions = Omit<QueryOf<"POST /api/v1/tables/{name}/load">, "file">;

export interface LoadReport {
  table: string;
  created: boolean;
  dry_run: boolean;
  files: { file: string; format: string; bytes: number; rows: number; bad_rows: number; duplicate: boolean }[];
  rows: number;
  bad_rows: number;
  duplicate_rows: number;
  batches: number;
  bytes: number;
  seconds: number;
  rows_per_s: number;
  columns: { name: string; type: string; nullable: boolean }[];
  key: string[];
  drift: { column: string; change: string; in_table: string; in_files: string; done: string }[];
  renamed: Record<string, string>;
  first_bad: { file: string; line: number; column: string; value: string; reason: string }[];
  first_rows: Record<string, unknown>[];
  duplicate: boolean;
}

export type LoadProgress = { step: string; share: number | undefined };

interface Line {
  progress?: { step: string; share: number };
  result?: LoadReport;
  error?: { code: string; message: string; retry_after_s: number | null };
}

/** Sends a file and follows the load. `fetch` does not tell how much of a body was sent; the older way does. */
export function loadFile(
  table: string,
  file: File,
  options: LoadOptions,
  progress: (progress: LoadProgress) => void,
  signal: AbortSignal,
): Promise<LoadReport> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const query = { file: file.name, ...options };
    request.open("POST", addressOf("/api/v1/tables/{name}/load", { name: table }, query));
    request.setRequestHeader("Accept", "application/x-ndjson");
    request.setRequestHeader("Content-Type", "application/octet-stream");
    signal.addEventListener("abort", () => request.abort());
    request.upload.onprogress = (event) =>
      progress({ step: "sending", share: event.lengthComputable ? event.loaded / event.total : undefined });
    request.onprogress = () => {
      const last = linesOf(request.responseText).findLast((line) => line.progress);
      if (last?.progress) progress(last.progress);
    };
    request.onerror = () =>
      reject(new ApiError("unreachable", "The server does not answer. Check that it runs, then try again.", 0));
    request.onabort = () => reject(new DOMException("The person stopped it.", "AbortError"));
    request.onload = () => {
      if (request.status === 401) onUnauthorized.call();
      const last = linesOf(request.responseText).findLast((line) => line.result ?? line.error);
      if (last?.result) resolve(last.result);
      else if (last?.error) {
        reject(new ApiError(last.error.code, last.error.message, request.status, last.error.retry_after_s));
      } else reject(new ApiError("unknown", `The server answered ${request.status}.`, request.status));
    };
    request.send(file);
  });
}

function linesOf(text: string): Line[] {
  return text.split("\n").flatMap((line) => {
    try {
      return line ? [parseJson(line) as Line] : [];
    } catch {
      return []; // the last one is not whole yet
    }
  });
}
