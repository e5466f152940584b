/** What a page shows of a request: its answer, its error, and whether it is under way. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { asError, isAbort, type ApiError } from "./errors";

export interface Answered<T> {
  /** The last answer; it stays while a new one is under way. */
  data: T | undefined;
  error: ApiError | undefined;
  loading: boolean;
  /** Asks again. */
  reload: () => void;
}

export interface AnswerOptions {
  /** Ask again every so many milliseconds while the page is visible. */
  everyMs?: number;
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
  { everyMs, when = true }: AnswerOptions = {},
): Answered<T> {
  const [state, setState] = useState<Omit<Answered<T>, "reload">>({ data: undefined, error: undefined, loading: when });
  const [turn, setTurn] = useState(0);
  const latest = useRef(ask);
  latest.current = ask;
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
    const timer = setInterval(() => document.visibilityState === "visible" && reload(), everyMs);
    return () => clearInterval(timer);
  }, [everyMs, when, reload]);

  return { ...state, reload };
}
