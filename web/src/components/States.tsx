/** What stands where data would be: nothing there yet, an error, or a wait. */

import type { ComponentChildren } from "preact";
import type { ApiError } from "../api/errors";
import type { Answered } from "../api/useAnswer";
import { Button } from "./Button";

/** Nothing is there: says why, and what to do next. */
export function EmptyState({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children}
    </div>
  );
}

interface ErrorProps {
  error: ApiError;
  retry?: (() => void) | undefined;
}

/** What went wrong, in the server's words, which say what to do; and a button to try again. */
export function ErrorBox({ error, retry }: ErrorProps) {
  return (
    <div class="error-box" role="alert">
      <p>
        <span aria-hidden="true">✕ </span>
        {error.message}
      </p>
      <p class="hint">
        {error.code}
        {error.requestId && <> · request {error.requestId}</>}
      </p>
      {retry && <Button onClick={retry}>Try again</Button>}
    </div>
  );
}

/** A wait of unknown length. It shows after a moment only: most answers come sooner. */
export function Loading({ what = "Loading" }: { what?: string }) {
  return (
    <div class="loading" role="status">
      <span class="spinner" aria-hidden="true" /> {what}…
    </div>
  );
}

interface ProgressProps {
  /** 0 to 1; unknown if left out. */
  share?: number | undefined;
  label: string;
}

export function Progress({ share, label }: ProgressProps) {
  return (
    <div class="progress">
      <progress value={share} max={1} aria-label={label} />
      <span class="hint">{label}</span>
    </div>
  );
}

interface ShownProps<T> {
  of: Answered<T>;
  what?: string;
  /** Shown instead of the children if it returns something: there is nothing in the answer. */
  empty?: (data: T) => ComponentChildren;
  children: (data: T) => ComponentChildren;
}

/** Shows an answer, or what stands where it would be. */
export function Shown<T>({ of, what, empty, children }: ShownProps<T>) {
  if (of.data === undefined) {
    if (of.error) return <ErrorBox error={of.error} retry={of.reload} />;
    return of.loading ? <Loading {...(what ? { what } : {})} /> : null;
  }
  return (
    <div aria-busy={of.loading} class={of.loading ? "stale" : undefined}>
      {of.error && <ErrorBox error={of.error} retry={of.reload} />}
      {empty?.(of.data) || children(of.data)}
    </div>
  );
}
