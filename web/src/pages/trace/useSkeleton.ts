/** The spans of a trace for its page: the first rows by one request, then all of them from the skeleton. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { addressOf, onUnauthorized } from "../../api/client";
import { ApiError, asError, isAbort } from "../../api/errors";
import { getWindow, type TraceWindow, type TreeSpan } from "../../api/trace";
import type { Operations, Picture } from "./figures";
import { CRITICAL, CYCLE, EARLY, ERROR, LATE, ORPHAN, ROOT, treeOf, type Tree } from "./tree";
import type { Reply } from "./worker";

export interface TraceFacts {
  spans: number;
  errors: number;
  startNs: bigint;
  endNs: bigint;
  orphans: number;
  cycles: number;
  skewed: number;
  deepest: number;
  complete: boolean;
}

export interface Skeleton {
  tree: Tree;
  facts: TraceFacts;
  /** Known with all rows only. */
  operations: Operations | null;
  picture: Picture | null;
  /** The row of the trace that the first row here is: windows of a trace that is too large begin anywhere. */
  offset: number;
  isWhole: boolean;
}

export interface SkeletonState {
  skeleton: Skeleton | null;
  error: ApiError | undefined;
  /** Why only a window can be shown: the trace has too many spans. */
  tooLarge: string | null;
  window: TraceWindow | null;
  reload: () => void;
}

const FIRST_ROWS = 60;
const WINDOW_ROWS = 1_000;

export function useSkeleton(traceId: string, offset: number): SkeletonState {
  const [turn, setTurn] = useState(0);
  const [whole, setWhole] = useState<Skeleton | null>(null);
  const [window, setWindow] = useState<TraceWindow | null>(null);
  const [error, setError] = useState<ApiError | undefined>();
  const [tooLarge, setTooLarge] = useState<string | null>(null);

  useEffect(() => {
    const control = new AbortController();
    const worker = new Worker(new URL("./worker.ts", import.meta.url), { type: "module" });
    worker.onmessage = ({ data }: MessageEvent<Reply>) => {
      worker.terminate();
      if ("loaded" in data) {
        setWhole({ ...data.loaded, facts: factsOf(data.loaded.facts), offset: 0, isWhole: true });
        setError(undefined);
        return;
      }
      const failed = errorOf(data.status, data.body);
      if (failed.status === 401) onUnauthorized.call();
      if (failed.status === 413) setTooLarge(failed.message);
      else setError(failed);
    };
    worker.onerror = (event) => setError(new ApiError("page", event.message || "The reader of traces failed.", 0));
    // One after the other: asked at once, both would make the server work out a tree that it does not hold yet.
    getWindow(traceId, { limit: FIRST_ROWS }, control.signal).then(
      (found) => {
        setWindow(found);
        worker.postMessage({ address: addressOf("/api/v1/traces/{trace_id}/skeleton", { trace_id: traceId }).href });
      },
      (thrown: unknown) => !isAbort(thrown) && setError(asError(thrown)),
    );
    return () => {
      control.abort();
      worker.terminate();
    };
  }, [traceId, turn]);

  useEffect(() => {
    if (tooLarge === null) return;
    const control = new AbortController();
    getWindow(traceId, { limit: WINDOW_ROWS, offset }, control.signal).then(
      setWindow,
      (thrown: unknown) => !isAbort(thrown) && setError(asError(thrown)),
    );
    return () => control.abort();
  }, [traceId, tooLarge, offset]);

  const first = useMemo(() => (window ? ofWindow(window) : null), [window]);
  return {
    skeleton: whole ?? first,
    error: whole ? undefined : error,
    tooLarge,
    window,
    reload: () => {
      setError(undefined);
      setTurn((before) => before + 1);
    },
  };
}

function errorOf(status: number, body: string): ApiError {
  try {
    const { error } = JSON.parse(body) as { error: { code: string; message: string } };
    return new ApiError(error.code, error.message, status);
  } catch {
    return new ApiError(
      "unreachable",
      status ? body : "The server does not answer. Check that it runs, then try again.",
      status,
    );
  }
}

function factsOf(found: Record<string, string>): TraceFacts {
  const number = (name: string) => Number(found[name] ?? 0);
  return {
    spans: number("spans"),
    errors: number("errors"),
    startNs: BigInt(found.start_ns ?? 0),
    endNs: BigInt(found.end_ns ?? 0),
    orphans: number("orphans"),
    cycles: number("cycles"),
    skewed: number("skewed"),
    deepest: number("deepest"),
    complete: found.complete !== "false",
  };
}

function flagsOf(span: TreeSpan): number {
  return (
    (span.status === "ERROR" ? ERROR : 0) |
    (span.parent_span_id ? 0 : ROOT) |
    (span.orphan ? ORPHAN : 0) |
    (span.in_cycle && span.depth === 0 ? CYCLE : 0) |
    (span.starts_early ? EARLY : 0) |
    (span.ends_late ? LATE : 0) |
    (span.critical_ns > 0 ? CRITICAL : 0)
  );
}

/** Makes a skeleton of some rows, in the form of the whole one. */
function ofWindow(window: TraceWindow): Skeleton {
  const { spans } = window;
  const [names, services] = [
    [...new Set(spans.map((span) => span.name))],
    [...new Set(spans.map((span) => span.service))],
  ];
  const us = (from: bigint | number, until: bigint | number) => Number(BigInt(until) - BigInt(from)) / 1_000;
  const columns = {
    depth: Uint32Array.from(spans, (span) => span.depth),
    start: Float64Array.from(spans, (span) => us(window.start_ns, span.start_ns)),
    duration: Float64Array.from(spans, (span) => us(span.start_ns, span.end_ns)),
    name: Uint32Array.from(spans, (span) => names.indexOf(span.name)),
    service: Uint32Array.from(spans, (span) => services.indexOf(span.service)),
    flags: Uint8Array.from(spans, flagsOf),
    names,
    services,
  };
  const facts = {
    spans: window.span_count,
    errors: window.error_count,
    startNs: BigInt(window.start_ns),
    endNs: BigInt(window.end_ns),
    orphans: window.orphans,
    cycles: window.cycles,
    skewed: window.skewed,
    deepest: window.deepest,
    complete: true,
  };
  const tree = treeOf(columns, us(window.start_ns, window.end_ns));
  return { tree, facts, operations: null, picture: null, offset: window.offset, isWhole: false };
}
