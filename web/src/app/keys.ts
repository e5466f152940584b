/** Keys of the pages: what each does, listed by `?`. A key is not taken while a person types into a field. */

import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

export interface Key {
  /** As `KeyboardEvent.key` names it: `/`, `j`, `Escape`; with `Ctrl+` for Ctrl or Cmd; two letters for one after another. */
  key: string;
  about: string;
  run: (event: KeyboardEvent) => void;
  /** Also while a person types. */
  inFields?: boolean;
}

interface Group {
  title: string;
  keys: Key[];
}

/** The groups in force, the latest last. */
export const groups = signal<Group[]>([]);

/**
 * Sets keys while a component is shown.
 *
 *     useKeys("Trace", [{ key: "n", about: "Next match", run: () => next() }]);
 */
export function useKeys(title: string, keys: Key[]): void {
  const latest = useRef(keys);
  latest.current = keys;
  const signature = keys.map((each) => each.key).join(" ");
  useEffect(() => {
    const group: Group = {
      title,
      keys: keys.map((each, index) => ({ ...each, run: (event) => latest.current[index]?.run(event) })),
    };
    groups.value = [...groups.value, group];
    return () => (groups.value = groups.value.filter((each) => each !== group));
  }, [title, signature]);
}

const SEQUENCE_MS = 900;

function isField(target: EventTarget | null): boolean {
  const element = target as HTMLElement | null;
  return !!element?.closest?.("input:not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable=true]");
}

export function startKeys(): void {
  let first = "";
  let firstAt = 0;
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.altKey || event.isComposing) return;
    const inDialog = (event.target as Element).closest?.("dialog");
    const name = (event.ctrlKey || event.metaKey ? "Ctrl+" : "") + event.key;
    const both = performance.now() - firstAt < SEQUENCE_MS ? `${first} ${event.key}` : "";
    // Of an editor in a shadow tree, the event has only the host as its target.
    const typing = isField(event.composedPath()[0] ?? null);
    for (const group of groups.value.toReversed()) {
      for (const key of group.keys) {
        if ((key.key !== name && key.key !== both) || (typing && !key.inFields) || (inDialog && !key.inFields))
          continue;
        event.preventDefault();
        first = "";
        key.run(event);
        return;
      }
    }
    if (!typing && event.key.length === 1) [first, firstAt] = [event.key, performance.now()];
  });
}
