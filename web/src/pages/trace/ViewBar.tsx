import type { TraceWindow } from "../../api/trace";
import { Button, Select } from "../../components";
import { count } from "../../format/numbers";
import type { SetTrace, TraceState } from "./TracePage";
import type { Collapse } from "./useCollapse";
import type { Skeleton } from "./useSkeleton";

interface Props {
  state: TraceState;
  set: SetTrace;
  skeleton: Skeleton;
  collapse: Collapse;
}

const LEVELS = [1, 2, 3, 4, 5, 6, 8, 10, 15, 20];

/** How the trace is shown: levels, critical path, flame graph, operations, zoom. */
export function ViewBar({ state, set, skeleton, collapse }: Props) {
  const { facts, isWhole } = skeleton;
  const because = isWhole ? undefined : "The other spans are still being read";
  const levels = LEVELS.filter((level) => level <= facts.deepest);
  return (
    <div class="view-bar">
      <Select
        label="Levels"
        hideLabel
        value={String(collapse.level)}
        disabled={!isWhole}
        onChange={(level) => collapse.setLevel(Number(level))}
        options={[
          ["0", "All levels"],
          ...levels.map((level) => [String(level), `${level} ${level > 1 ? "levels" : "level"}`] as const),
        ]}
      />
      <Button
        because={because}
        aria-pressed={state.critical}
        title="Only the critical path (c)"
        onClick={() => set({ critical: !state.critical })}
      >
        Critical path
      </Button>
      <Button aria-pressed={state.flame} title="Flame graph (f)" onClick={() => set({ flame: !state.flame })}>
        Flame graph
      </Button>
      <Button
        because={because}
        aria-pressed={state.view === "operations"}
        title="Figures by operation (o)"
        onClick={() => set({ view: state.view === "operations" ? "spans" : "operations" })}
      >
        Operations
      </Button>
      {state.zoom && (
        <Button title="Show all of the time (0)" onClick={() => set({ zoom: null })}>
          Whole time
        </Button>
      )}
      {state.operation && (
        <Button title="Show all operations again" onClick={() => set({ service: "", operation: "" }, { push: true })}>
          {state.service}: {state.operation} ×
        </Button>
      )}
    </div>
  );
}

interface WindowProps {
  message: string;
  window: TraceWindow | null;
  set: SetTrace;
}

/** Pages through a trace that is too large to show whole. */
export function WindowBar({ message, window, set }: WindowProps) {
  if (!window) return null;
  const last = window.offset + window.spans.length;
  return (
    <div class="window-bar" role="status">
      <p>
        Rows {count(window.offset + 1)} to {count(last)} of {count(window.span_count)}. {message}
      </p>
      <Button
        disabled={window.offset === 0}
        onClick={() => set({ offset: Math.max(0, window.offset - 1_000) }, { push: true })}
      >
        ← Before
      </Button>
      <Button
        disabled={window.next_offset === null}
        onClick={() => set({ offset: window.next_offset ?? 0 }, { push: true })}
      >
        After →
      </Button>
    </div>
  );
}
