import { useEffect, useRef, useState } from "preact/hooks";
import { searchTraces, type TraceSummary } from "../../api/traces";
import { useAnswer } from "../../api/useAnswer";
import { useKeys } from "../../app/keys";
import { Badge, Button, EmptyState, Panel, Shown } from "../../components";
import { counted } from "../../format/numbers";
import { ResultList } from "./ResultList";
import { queryOf, type SearchState, type SetSearch } from "./search";

const EVERY_MS = 2_000;
const ASKED = 100;
const KEPT = 500;

/** The newest traces that match, as they come. A pause holds the list still and goes on counting. */
export function LiveTail({ state, set }: { state: SearchState; set: SetSearch }) {
  const known = useRef(new Map<string, TraceSummary>());
  const [shown, setShown] = useState<readonly TraceSummary[]>([]);
  const [fresh, setFresh] = useState<ReadonlySet<string>>(new Set());
  const [paused, setPaused] = useState(false);
  const { cursor, at, order, pick, box, heat, ...asked } = state;
  const search = Object.values(asked).join("\n");
  const query = () => ({ ...queryOf({ ...state, cursor: "", at: null, order: "newest" }), limit: ASKED });
  const found = useAnswer((signal) => searchTraces(query(), signal), [search], { everyMs: EVERY_MS });

  useEffect(() => known.current.clear(), [search]);
  useEffect(() => {
    if (!found.data) return;
    for (const trace of found.data.traces) known.current.set(trace.trace_id, trace);
    const newest = [...known.current.values()].sort((left, right) => (left.start_ns < right.start_ns ? 1 : -1));
    known.current = new Map(newest.slice(0, KEPT).map((trace) => [trace.trace_id, trace]));
    if (!paused) show();
  }, [found.data, paused]);

  const show = () => {
    const next = [...known.current.values()];
    const before = new Set(shown.map((trace) => trace.trace_id));
    setFresh(new Set(before.size ? next.map((trace) => trace.trace_id).filter((id) => !before.has(id)) : []));
    setShown(next);
  };
  const waiting = paused
    ? [...known.current.keys()].filter((id) => !shown.some((trace) => trace.trace_id === id)).length
    : 0;
  useKeys("Live traces", [{ key: "p", about: "Pause or go on", run: () => setPaused(!paused) }]);
  return (
    <Panel
      flush
      title={
        <span class="live-title" role="status">
          {paused ? <Badge tone="warn">Paused</Badge> : <Badge tone="running">Live</Badge>}{" "}
          {paused && waiting > 0
            ? `${counted(waiting, "new trace")} since`
            : `Newest first, asked every ${EVERY_MS / 1_000} s`}
        </span>
      }
      actions={
        <>
          <Button onClick={() => setPaused(!paused)}>{paused ? "Go on" : "Pause"}</Button>
          <Button onClick={() => set({ live: false }, { push: true })}>Stop</Button>
        </>
      }
    >
      <Shown
        of={found}
        what="Waiting for traces"
        empty={() =>
          shown.length === 0 && (
            <EmptyState title="Waiting for traces">
              <p>They show here as soon as they arrive.</p>
            </EmptyState>
          )
        }
      >
        {() => (
          <ResultList
            label="Live traces"
            traces={shown}
            picked={pick}
            onPick={(next) => set({ pick: next })}
            fresh={fresh}
          />
        )}
      </Shown>
    </Panel>
  );
}
