/** What a page shows of a request: its answer, its error, and whether it is under way. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { onChanges } from "./changes";
import { asError, isAbort, type ApiError } from "./errors";

const FOLLOW_MS = 2_000;

export interface Answered<T> {
  /** The last answer; it stays while a new one is under way. */
  data: T | undefined;
  error: ApiError | undefined;
  loading: boolean;
  /** Asks again. */
  reload: () => void;
}

export interface AnswerOptions {
  /** Polling interval in milliseconds, while the page is visible. */
  everyMs?: number;
  /** Ask again when one of these tables changes, at most every two seconds: `[SPANS]`, `[BUILD_EVENTS]`, `[name]`. */
  follow?: readonly string[] | undefined;
  /** Ask only if this is true. */
  when?: boolean;
}

/**
 * Asks, and asks again when one of `inputs` changes; an earlier request is given up then.
 *
 *     const traces = useAnswer((signal) => searchTraces({ service }, signal), [service]);
 */
export function useAnswer<T>(
  ask: (signal: AbortSignal) => Promise<T>,
  inputs: readonly unknown[],
  { everyMs, follow, when = true }: AnswerOptions = {},
): Answered<T> {
  const [state, setState] = useState<Omit<Answered<T>, "reload">>({ data: undefined, error: undefined, loading: when });
  const [turn, setTurn] = useState(0);
  const latest = useRef(ask);
  latest.current = ask;
  const busy = useRef(false);
  busy.current = state.loading;
  const reload = useCallback(() => setTurn((before) => before + 1), []);

  useEffect(() => {
    if (!when) {
      setState({ data: undefined, error: undefined, loading: false });
      return;
    }
    const control = new AbortController();
    setState((before) => ({ ...before, loading: true }));
    latest.current(control.signal).then(
      (data) => !control.signal.aborted && setState({ data, error: undefined, loading: false }),
      (thrown: unknown) => {
        if (control.signal.aborted || isAbort(thrown)) return;
        setState((before) => ({ data: before.data, error: asError(thrown), loading: false }));
      },
    );
    return () => control.abort();
  }, [...inputs, turn, when]);

  useEffect(() => {
    if (!everyMs || !when) return;
    // A request that takes longer than that is not given up for the next.
    const timer = setInterval(() => document.visibilityState === "visible" && !busy.current && reload(), everyMs);
    return () => clearInterval(timer);
  }, [everyMs, when, reload]);

  const followed = follow?.join(" ") ?? "";
  useEffect(() => {
    if (!followed || !when) return;
    const names = followed.split(" ");
    let timer: ReturnType<typeof setTimeout> | undefined;
    let last = performance.now();
    const stop = onChanges((tables) => {
      if (timer !== undefined || !names.some((name) => tables.has(name))) return;
      const waitMs = Math.max(0, FOLLOW_MS - (performance.now() - last));
      timer = setTimeout(() => {
        [timer, last] = [undefined, performance.now()];
        reload();
      }, waitMs);
    });
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, [followed, when, reload]);

  return { ...state, reload };
}
