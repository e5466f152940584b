import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { isDark } from "../../app/preferences";
import { Swatch } from "../../components";
import { useVirtual } from "../../components/virtual";
import { colourOf } from "../../format/colours";
import { count, duration } from "../../format/numbers";
import { drawBars, paletteOf, tickLabel, ticks, type Zoom } from "./bars";
import { useDrag, useWidth } from "./Overview";
import { CYCLE, EARLY, ERROR, LATE, ORPHAN, placeOf, type Tree } from "./tree";
import type { Collapse } from "./useCollapse";

const ROW_PX = 24;
// Rows beyond the edge of the screen, so that a quick scroll shows no gap before they are drawn.
const MORE_ROWS = 6;

interface Props {
  tree: Tree;
  /** The rows that are not hidden, ascending. */
  visible: Uint32Array;
  collapse: Collapse;
  marked: Uint8Array | null;
  zoom: Zoom;
  onZoom: (zoom: Zoom | null) => void;
  /** The row that the keys move; -1 for none. Whether its details are open is the page's matter. */
  current: number;
  isOpen: boolean;
  onCurrent: (row: number) => void;
  onOpen: (row: number) => void;
  onZoomTo: (row: number) => void;
  /** The row of the trace that row 0 is. */
  offset: number;
  total: number;
  /** Changes when `current` is to be scrolled to. */
  shown: number;
}

/** The rows of a trace: names that are read as a tree, and bars on one canvas beside them. */
export function Waterfall(props: Props) {
  const { tree, visible, collapse, zoom, current, onCurrent } = props;
  const view = useVirtual(visible.length, ROW_PX);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [timeline, width] = useWidth<HTMLDivElement>();
  const outer = useRef<HTMLDivElement>(null);
  const dark = isDark.value;
  const palette = useMemo(() => paletteOf(tree.services), [tree.services, dark]);
  const from = Math.max(0, view.from - MORE_ROWS);
  const until = Math.min(visible.length, view.until + MORE_ROWS);
  const top = view.top - (view.from - from) * ROW_PX;
  const [onPointerDown, dragged] = useDrag(zoom, width, props.onZoom);

  useLayoutEffect(() => {
    if (!canvas.current || !width) return;
    drawBars(canvas.current, { tree, rows: visible, from, until, zoom, rowPx: ROW_PX, width, palette });
  }, [tree, visible, from, until, zoom.from, zoom.until, width, palette]);
  // The axis stands above the bars, not above the scroll bar beside them.
  useLayoutEffect(() => {
    const frame = outer.current?.querySelector<HTMLElement>(".waterfall-frame");
    if (frame) outer.current!.style.setProperty("--scrollbar", `${frame.offsetWidth - frame.clientWidth}px`);
  }, [width]);
  useEffect(() => {
    const place = placeOf(visible, current);
    if (place >= 0) view.show(place, true);
  }, [props.shown]);

  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey || visible.length === 0) return;
    const found = placeOf(visible, current);
    const place = found >= 0 ? found : Math.max(0, -found - 2);
    const row = visible[place]!;
    const page = Math.max(1, view.until - view.from - 2);
    const hasChildren = tree.end[row]! > row + 1;
    const moves: Record<string, number> = {
      ArrowDown: current < 0 ? 0 : place + 1,
      ArrowUp: place - 1,
      PageDown: place + page,
      PageUp: place - page,
      Home: 0,
      End: visible.length - 1,
    };
    let next = moves[event.key];
    if (event.key === "ArrowRight") {
      if (hasChildren && collapse.closed[row] === 1) collapse.set(row, false);
      else if (hasChildren) next = place + 1;
    } else if (event.key === "ArrowLeft") {
      if (hasChildren && collapse.closed[row] !== 1) collapse.set(row, true);
      else if (tree.parent[row]! >= 0) next = placeOf(visible, tree.parent[row]!);
    } else if (event.key === " ") {
      collapse.toggle(row);
    } else if (event.key === "Enter") {
      props.onOpen(row);
    } else if (next === undefined) {
      return;
    }
    event.preventDefault();
    if (next === undefined) return;
    const moved = Math.max(0, Math.min(visible.length - 1, next));
    onCurrent(visible[moved]!);
    view.show(moved);
  };
  const onWheel = (event: WheelEvent) => {
    if (!event.ctrlKey || !timeline.current || width <= 0) return;
    const x = event.clientX - timeline.current.getBoundingClientRect().left;
    if (x < 0) return;
    event.preventDefault();
    const at = zoom.from + (x / width) * (zoom.until - zoom.from);
    const factor = event.deltaY > 0 ? 1.25 : 0.8;
    const next = { from: at - (at - zoom.from) * factor, until: at + (zoom.until - at) * factor };
    props.onZoom({ from: Math.max(0, next.from), until: Math.min(tree.length, next.until) });
  };

  const rows = [];
  for (let place = from; place < until; place++) {
    const row = visible[place]!;
    rows.push(
      <Row
        key={row}
        tree={tree}
        row={row}
        index={props.offset + place + 1}
        isClosed={collapse.closed[row] === 1}
        isMarked={props.marked !== null && props.marked[row] === 1}
        isCurrent={row === current}
      />,
    );
  }
  const rowOf = (event: Event): number => {
    const found = (event.target as Element).closest<HTMLElement>("[data-row]");
    return found ? Number(found.dataset.row) : -1;
  };
  const range = zoom.until - zoom.from;
  return (
    <div class="waterfall" ref={outer}>
      <div class="waterfall-head">
        <div>Service and operation</div>
        <div class="right">Duration</div>
        <div class="waterfall-axis" title="Drag to zoom in time" onPointerDown={onPointerDown}>
          {ticks(zoom, Math.max(1, Math.floor(width / 110))).map((at) => (
            <span key={at} style={{ left: `${(100 * (at - zoom.from)) / range}%` }}>
              {tickLabel(at)}
            </span>
          ))}
          {dragged && (
            <div
              class="overview-range"
              style={{
                left: `${(100 * (dragged.from - zoom.from)) / range}%`,
                width: `${(100 * (dragged.until - dragged.from)) / range}%`,
              }}
            />
          )}
        </div>
      </div>
      <div
        class="waterfall-frame"
        role="treegrid"
        aria-label="Spans"
        aria-rowcount={visible.length === tree.rows ? props.total : visible.length}
        aria-colcount={3}
        aria-activedescendant={placeOf(visible, current) >= 0 ? `span-row-${current}` : undefined}
        tabIndex={0}
        ref={view.frame}
        onScroll={view.onScroll}
        onKeyDown={onKeyDown}
        onWheel={onWheel}
        onClick={(event) => {
          const row = rowOf(event);
          if (row < 0) return;
          if (!(event.target as Element).closest(".twist")) props.onOpen(row);
          else if (event.altKey) collapse.setBelow(row, collapse.closed[row] !== 1);
          else collapse.toggle(row);
        }}
        onDblClick={(event) => {
          const row = rowOf(event);
          if (row >= 0 && !(event.target as Element).closest(".twist")) props.onZoomTo(row);
        }}
      >
        <div class="waterfall-range" role="presentation" style={{ height: `${view.height}px` }}>
          <div class="waterfall-rows" role="rowgroup" style={{ transform: `translateY(${top}px)` }}>
            {rows}
            <div class="waterfall-canvas" aria-hidden="true" ref={timeline}>
              <canvas ref={canvas} style={{ height: `${Math.max(1, (until - from) * ROW_PX)}px` }} />
            </div>
          </div>
        </div>
      </div>
    </div>
  );
}

// Deep trees keep room for names: after some levels the steps are small, and the level is written.
const STEPS = 12;

function indent(depth: number): string {
  return `calc(var(--step) * ${Math.min(depth, STEPS)} + ${Math.min(Math.max(0, depth - STEPS), 40)}px)`;
}

interface RowProps {
  tree: Tree;
  row: number;
  index: number;
  isClosed: boolean;
  isMarked: boolean;
  isCurrent: boolean;
}

function Row({ tree, row, index, isClosed, isMarked, isCurrent }: RowProps) {
  const depth = tree.depth[row]!;
  const below = tree.end[row]! - row - 1;
  const service = tree.services[tree.service[row]!] ?? "";
  const flags = tree.flags[row]!;
  return (
    <div
      role="row"
      id={`span-row-${row}`}
      data-row={row}
      class={`waterfall-row${isMarked ? " marked" : ""}${isCurrent ? " current" : ""}`}
      aria-rowindex={index}
      aria-level={depth + 1}
      aria-expanded={below > 0 ? !isClosed : undefined}
      aria-selected={isCurrent}
    >
      <div role="gridcell" class="waterfall-name" style={{ paddingLeft: indent(depth) }}>
        <span class="twist" aria-hidden="true">
          {below > 0 ? (isClosed ? "▸" : "▾") : ""}
        </span>
        {depth > STEPS && <span class="waterfall-level">{depth + 1}</span>}
        {isMarked && (
          <span class="waterfall-match" title="Matches">
            ◆
          </span>
        )}
        <Swatch index={colourOf(service)} />
        <span class="waterfall-service">{service}</span>
        <span class="waterfall-operation">{tree.names[tree.name[row]!]}</span>
        {flags !== 0 && <Marks flags={flags} />}
        {isClosed && <span class="waterfall-below">+{count(below)}</span>}
      </div>
      <div role="gridcell" class="waterfall-duration number">
        {duration(Math.round(tree.duration[row]! * 1_000))}
      </div>
      <div role="gridcell">
        <span class="visually-hidden">starts after {duration(Math.round(tree.start[row]! * 1_000))}</span>
      </div>
    </div>
  );
}

/** What is wrong with a span, as a shape and a word. */
function Marks({ flags }: { flags: number }) {
  return (
    <>
      {(flags & ERROR) !== 0 && (
        <span class="mark error">
          <span aria-hidden="true">✕</span> error
        </span>
      )}
      {(flags & ORPHAN) !== 0 && (
        <span class="mark warn" title="Its parent has not arrived">
          <span aria-hidden="true">⚬</span> orphan
        </span>
      )}
      {(flags & CYCLE) !== 0 && (
        <span class="mark warn" title="It is its own ancestor; the cycle is opened here">
          <span aria-hidden="true">↻</span> cycle
        </span>
      )}
      {(flags & EARLY) !== 0 && (
        <span class="mark warn" title="Starts before its parent: clocks differ">
          <span aria-hidden="true">◂</span> early
        </span>
      )}
      {(flags & LATE) !== 0 && (
        <span class="mark warn" title="Ends after its parent: clocks differ, or the parent did not wait">
          late <span aria-hidden="true">▸</span>
        </span>
      )}
    </>
  );
}
