/** One trace: an overview, rows with bars, a flame graph, figures by operation, and the details of a span. */

import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { getPlace, getWindow, type TreeSpan } from "../../api/trace";
import { useAnswer } from "../../api/useAnswer";
import { choice, flag, text, useAddress, whole, type Parameter } from "../../app/address";
import { useKeys } from "../../app/keys";
import type { PageProps } from "../../app/pages";
import { to } from "../../app/router";
import { useTitle } from "../../app/title";
import { EmptyState, ErrorBox, Loading, PageHead } from "../../components";
import type { Zoom } from "./bars";
import { FindBar } from "./FindBar";
import { Flame } from "./Flame";
import { OperationsTable } from "./OperationsTable";
import { Overview } from "./Overview";
import { SpanPanel } from "./SpanPanel";
import "./trace.css";
import { TraceHead } from "./TraceHead";
import { ERROR, placeOf, rowsWith, visibleRows } from "./tree";
import { useCollapse } from "./useCollapse";
import { useMatches } from "./useMatches";
import { useSkeleton, type Skeleton, type SkeletonState } from "./useSkeleton";
import { ViewBar, WindowBar } from "./ViewBar";
import { Waterfall } from "./Waterfall";

/** A range of microseconds from the start of the trace: `1200-45000`. */
function range(): Parameter<Zoom | null> {
  return {
    fallback: null,
    read: ([value]) => {
      const parts = /^(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)$/.exec(value ?? "");
      const [from, until] = [Number(parts?.[1]), Number(parts?.[2])];
      return parts && until > from ? { from, until } : null;
    },
    write: (zoom) => (zoom === null ? [] : [`${short(zoom.from)}-${short(zoom.until)}`]),
  };
}

function short(us: number): string {
  return String(Math.round(us * 1_000) / 1_000);
}

const SHAPE = {
  span: text(),
  zoom: range(),
  q: text(),
  by: choice(["text", "filter"]),
  only: flag(),
  service: text(),
  operation: text(),
  critical: flag(),
  flame: flag(),
  view: choice(["spans", "operations"]),
  sort: text("-self"),
  level: whole(0),
  closed: text(),
  offset: whole(0),
};

export type TraceState = ReturnType<typeof useAddress<typeof SHAPE>>[0];
export type SetTrace = ReturnType<typeof useAddress<typeof SHAPE>>[1];

export default function TracePage({ params }: PageProps) {
  const traceId = params.traceId ?? "";
  const [state, set] = useAddress(SHAPE);
  const loaded = useSkeleton(traceId, state.offset);
  const { skeleton, error, reload } = loaded;
  useTitle(skeleton?.tree.rows ? (skeleton.tree.names[skeleton.tree.name[0]!] ?? "Trace") : "Trace");
  if (skeleton === null)
    return (
      <>
        <PageHead title="Trace" above={<a href={to("traces")}>Traces</a>} />
        {error ? <ErrorBox error={error} retry={reload} /> : <Loading what="Reading the trace" />}
      </>
    );
  if (skeleton.tree.rows === 0)
    return (
      <EmptyState title="The trace has no spans">
        <p>
          They may have been erased. <a href={to("traces")}>Search traces</a>.
        </p>
      </EmptyState>
    );
  return <ShownTrace {...{ traceId, state, set, skeleton, loaded }} />;
}

interface Props {
  traceId: string;
  state: TraceState;
  set: SetTrace;
  skeleton: Skeleton;
  loaded: SkeletonState;
}

function ShownTrace({ traceId, state, set, skeleton, loaded }: Props) {
  const { tree, isWhole, offset } = skeleton;
  const keep = useCallback(({ level, rows }: { level: number; rows: string }) => set({ level, closed: rows }), [set]);
  const collapse = useCollapse(isWhole ? tree : null, { level: state.level, rows: state.closed }, keep);
  const matches = useMatches(traceId, tree, isWhole, {
    text: state.q,
    isFilter: state.by === "filter",
    only: state.only,
    service: state.service,
    operation: state.operation,
    critical: state.critical,
  });
  const visible = useMemo(
    () => visibleRows(tree, isWhole ? collapse.closed : new Uint8Array(tree.rows), matches.kept),
    [tree, isWhole, collapse.closed, collapse.version, matches.kept],
  );
  const zoom = useMemo(() => inside(state.zoom, tree.length), [state.zoom, tree.length]);
  const setZoom = (wanted: Zoom | null) => set({ zoom: wanted && wanted.until > wanted.from ? wanted : null });
  const zoomTo = (from: number, length: number) => {
    const margin = Math.max(1, length * 0.1);
    setZoom(inside({ from: from - margin, until: from + Math.max(length, 1) + margin }, tree.length));
  };
  const { current, select, open, close, span, shown } = useSelection({
    traceId,
    state,
    set,
    skeleton,
    reveal: collapse.reveal,
  });

  const move = (rows: Uint32Array | null, steps: 1 | -1) => {
    if (!rows?.length) return;
    const place = placeOf(rows, current);
    const next = place >= 0 ? place + steps : steps > 0 ? -place - 1 : -place - 2;
    const row = rows[(next + rows.length) % rows.length]!;
    collapse.reveal(row);
    select(row, true);
  };
  const nextError = () => move(rowsWith(tree, ERROR), 1);
  const focusFind = () => document.getElementById("find-in-trace")?.focus();
  const zoomBy = (factor: number) => {
    const middle = (zoom.from + zoom.until) / 2;
    const half = ((zoom.until - zoom.from) / 2) * factor;
    const next = inside({ from: middle - half, until: middle + half }, tree.length);
    setZoom(next.from === 0 && next.until === tree.length ? null : next);
  };
  useKeys("Trace", [
    { key: "/", about: "Find in this trace", run: focusFind },
    { key: "n", about: "Next match", run: () => move(matches.rows, 1) },
    { key: "N", about: "Previous match", run: () => move(matches.rows, -1) },
    { key: "e", about: "Next error", run: nextError },
    { key: "c", about: "Only the critical path, or all spans", run: () => set({ critical: !state.critical }) },
    { key: "f", about: "Show or hide the flame graph", run: () => set({ flame: !state.flame }) },
    {
      key: "o",
      about: "Spans, or figures by operation",
      run: () => set({ view: state.view === "spans" ? "operations" : "spans" }),
    },
    { key: "+", about: "Zoom in", run: () => zoomBy(0.5) },
    { key: "-", about: "Zoom out", run: () => zoomBy(2) },
    { key: "0", about: "Show all of the time", run: () => setZoom(null) },
    {
      key: "z",
      about: "Zoom to the span",
      run: () => current >= 0 && zoomTo(tree.start[current]!, tree.duration[current]!),
    },
    { key: "Escape", about: "Close the span", run: close },
  ]);

  const shares = { tree, zoom, marked: matches.marked };
  return (
    <div class="trace-page">
      <TraceHead {...{ traceId, skeleton }} onErrors={nextError} />
      {loaded.error && <ErrorBox error={loaded.error} retry={loaded.reload} />}
      <div class="trace-tools">
        <FindBar
          text={state.q}
          isFilter={state.by === "filter"}
          only={state.only}
          onChange={set}
          matches={matches}
          at={matches.rows ? placeOf(matches.rows, current) : -1}
          onMove={(steps) => move(matches.rows, steps)}
        />
        <ViewBar {...{ state, set, skeleton, collapse }} />
      </div>
      {matches.error && <ErrorBox error={matches.error} />}
      {loaded.tooLarge && <WindowBar {...{ message: loaded.tooLarge, window: loaded.window, set }} />}
      <Overview tree={tree} picture={skeleton.picture} zoom={zoom} onZoom={setZoom} />
      {state.view === "operations" && skeleton.operations ? (
        <OperationsTable
          tree={tree}
          operations={skeleton.operations}
          sort={state.sort}
          onSort={(sort) => set({ sort })}
          onChoose={(service, operation) => set({ service, operation, view: "spans" }, { push: true })}
        />
      ) : (
        <div class={state.span || span ? "trace-main with-panel" : "trace-main"}>
          <div class="trace-left">
            {state.flame && (
              <Flame
                {...shares}
                selected={current}
                onSelect={(row) => {
                  collapse.reveal(row);
                  open(row, true);
                }}
                onZoomTo={(row) => zoomTo(tree.start[row]!, tree.duration[row]!)}
              />
            )}
            {visible.length === 0 ? (
              <EmptyState title="No span matches">
                <p>Find something else, or show all spans again.</p>
              </EmptyState>
            ) : (
              <Waterfall
                {...shares}
                {...{ visible, collapse, current, offset, shown }}
                onZoom={setZoom}
                isOpen={span !== null}
                onCurrent={(row) => select(row, false)}
                onOpen={(row) => open(row, false)}
                onZoomTo={(row) => zoomTo(tree.start[row]!, tree.duration[row]!)}
                total={skeleton.facts.spans}
              />
            )}
          </div>
          {span && (
            <SpanPanel
              answer={span}
              traceStart={skeleton.facts.startNs}
              traceLength={tree.length}
              onClose={close}
              onZoomTo={(found: TreeSpan) =>
                zoomTo(
                  Number(BigInt(found.start_ns) - skeleton.facts.startNs) / 1_000,
                  Number(BigInt(found.end_ns) - BigInt(found.start_ns)) / 1_000,
                )
              }
            />
          )}
        </div>
      )}
    </div>
  );
}

/** Returns a range that lies within the trace. */
function inside(zoom: Zoom | null, length: number): Zoom {
  if (zoom === null) return { from: 0, until: length };
  const from = Math.max(0, Math.min(zoom.from, length - 1e-3));
  return { from, until: Math.max(from + 1e-3, Math.min(zoom.until, length)) };
}

interface SelectionProps {
  traceId: string;
  state: TraceState;
  set: SetTrace;
  skeleton: Skeleton;
  reveal: (row: number) => void;
}

/** The row that keys move, and the span whose details are open: the row is known at once, its id with its details. */
function useSelection({ traceId, state, set, skeleton, reveal }: SelectionProps) {
  const { isWhole, offset, tree } = skeleton;
  const [current, setCurrent] = useState(-1);
  const [opened, setOpened] = useState(-1);
  const [shown, setShown] = useState(0);
  const ids = useRef(new Map<number, string>());
  const isOpen = opened >= 0 || state.span !== "";
  const details = useAnswer(
    async (signal) => {
      const at = opened >= 0 ? { offset: offset + opened } : { around: state.span };
      const [found] = (await getWindow(traceId, { ...at, limit: 1 }, signal)).spans;
      return found;
    },
    [traceId, opened >= 0 ? offset + opened : state.span],
    { when: isOpen },
  );
  // The id of the row that was opened goes into the address.
  useEffect(() => {
    const found = details.data;
    if (!found || details.loading || opened < 0 || offset + opened !== found.order) return;
    ids.current.set(opened, found.span_id);
    if (state.span !== found.span_id) set({ span: found.span_id }, { push: state.span === "" });
  }, [details.data, details.loading]);
  // The row of the id in the address: at the start, and after the back button.
  const isPlaced = state.span === "" || ids.current.get(opened) === state.span;
  useEffect(() => {
    if (isPlaced || !isWhole || details.loading) return;
    if (opened >= 0 && !ids.current.has(opened)) return;
    const control = new AbortController();
    getPlace(traceId, state.span, control.signal).then(
      ({ row }) => {
        if (row >= tree.rows) return;
        ids.current.set(row, state.span);
        reveal(row);
        setOpened(row);
        setCurrent(row);
        setShown((before) => before + 1);
      },
      () => {}, // The request for its details tells what is wrong.
    );
    return () => control.abort();
  }, [state.span, isWhole, isPlaced, details.loading]);
  useEffect(() => {
    if (state.span === "" && ids.current.has(opened)) setOpened(-1);
  }, [state.span]);

  const select = (row: number, scroll: boolean) => {
    setCurrent(row);
    if (isOpen) setOpened(row);
    if (scroll) setShown((before) => before + 1);
  };
  const open = (row: number, scroll: boolean) => {
    setCurrent(row);
    setOpened(row);
    if (scroll) setShown((before) => before + 1);
  };
  const close = () => {
    setOpened(-1);
    if (state.span) set({ span: "" }, { push: true });
  };
  return { current, select, open, close, shown, span: isOpen ? details : null };
}
