import { useEffect, useRef, useState } from "preact/hooks";
import { Button, Checkbox, Select } from "../../components";
import { count } from "../../format/numbers";
import type { Matches } from "./useMatches";

interface Props {
  text: string;
  isFilter: boolean;
  only: boolean;
  onChange: (changes: { q?: string; by?: "text" | "filter"; only?: boolean }) => void;
  matches: Matches;
  /** Which match the current row is, from 0; -1 if it is none. */
  at: number;
  onMove: (steps: 1 | -1) => void;
}

const WAIT_MS = 250;

/** Finds spans in the trace by text or by a filter; matches are shown in their place, or alone with their ancestors. */
export function FindBar({ text, isFilter, only, onChange, matches, at, onMove }: Props) {
  const [typed, setTyped] = useState(text);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => setTyped(text), [text]);
  useEffect(() => {
    if (typed === text) return;
    const timer = setTimeout(() => onChange({ q: typed }), WAIT_MS);
    return () => clearTimeout(timer);
  }, [typed]);
  const found = matches.rows?.length ?? 0;
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Enter") {
      event.preventDefault();
      if (typed !== text) onChange({ q: typed });
      else onMove(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape") {
      event.preventDefault();
      if (typed) {
        setTyped("");
        onChange({ q: "" });
      } else field.current?.blur();
    }
  };
  return (
    <div class="find-bar">
      <input
        ref={field}
        id="find-in-trace"
        type="search"
        class={isFilter ? "mono" : undefined}
        aria-label="Find in this trace"
        aria-invalid={matches.error ? true : undefined}
        placeholder={isFilter ? 'duration > 100ms and service = "shop"' : "Find in this trace"}
        value={typed}
        onInput={(event) => setTyped(event.currentTarget.value)}
        onKeyDown={onKeyDown}
      />
      <Select
        label="Find by"
        hideLabel
        value={isFilter ? "filter" : "text"}
        onChange={(by) => onChange({ by })}
        options={[
          ["text", "Text"],
          ["filter", "Filter"],
        ]}
      />
      {matches.rows !== null && (
        <>
          <span class="find-count number" role="status">
            {found === 0 ? "No match" : `${at >= 0 ? count(at + 1) : "–"} / ${count(matches.total)}`}
          </span>
          <Button
            kind="quiet"
            aria-label="Previous match"
            title="Previous match (N)"
            disabled={!found}
            onClick={() => onMove(-1)}
          >
            ↑
          </Button>
          <Button
            kind="quiet"
            aria-label="Next match"
            title="Next match (n)"
            disabled={!found}
            onClick={() => onMove(1)}
          >
            ↓
          </Button>
        </>
      )}
      {text !== "" && (
        <Checkbox label="Only matches" checked={only} onChange={(checked) => onChange({ only: checked })} />
      )}
      {matches.loading && (
        <span class="muted" role="status">
          Finding…
        </span>
      )}
    </div>
  );
}
