import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { isDark } from "../../app/preferences";
import { duration } from "../../format/numbers";
import { drawFlame, paletteOf, type Zoom } from "./bars";
import { useWidth } from "./Overview";
import type { Tree } from "./tree";

interface Props {
  tree: Tree;
  zoom: Zoom;
  selected: number;
  marked: Uint8Array | null;
  onSelect: (row: number) => void;
  onZoomTo: (row: number) => void;
}

const LANE_PX = 18;
const MOST_PX = 260;

/** The trace as a flame graph in step with the waterfall: the same zoom, the same open span, the same marks. */
export function Flame({ tree, zoom, selected, marked, onSelect, onZoomTo }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [box, width] = useWidth<HTMLDivElement>();
  const [top, setTop] = useState(0);
  const [hovered, setHovered] = useState<{ row: number; x: number; y: number } | null>(null);
  const dark = isDark.value;
  const palette = useMemo(() => paletteOf(tree.services), [tree.services, dark]);
  const first = Math.max(0, Math.floor(top / LANE_PX));
  const last = Math.min(tree.lanes, first + Math.ceil(MOST_PX / LANE_PX) + 1);
  useEffect(() => {
    if (!canvas.current || !width) return;
    drawFlame(canvas.current, { tree, zoom, width, first, last, lanePx: LANE_PX, palette, selected, marked });
  }, [tree, zoom, width, first, last, palette, selected, marked]);
  useEffect(() => {
    const frame = box.current;
    if (!frame || selected < 0) return;
    const y = tree.lane[selected]! * LANE_PX;
    if (y < frame.scrollTop || y + LANE_PX > frame.scrollTop + frame.clientHeight) frame.scrollTop = y - MOST_PX / 2;
  }, [selected, tree]);
  const rowAt = (event: MouseEvent): number => {
    const frame = box.current!.getBoundingClientRect();
    const lane = Math.floor((event.clientY - frame.top + box.current!.scrollTop) / LANE_PX);
    const x = event.clientX - frame.left;
    const us = zoom.from + (x / width) * (zoom.until - zoom.from);
    const slack = (zoom.until - zoom.from) / width;
    for (let row = 0; row < tree.rows; row++) {
      if (tree.lane[row] !== lane) continue;
      if (
        tree.start[row]! <= us + slack / 2 &&
        tree.start[row]! + Math.max(tree.duration[row]!, slack) >= us - slack / 2
      )
        return row;
    }
    return -1;
  };
  return (
    <div class="flame-outer">
      <div
        class="flame"
        ref={box}
        role="img"
        tabIndex={0}
        aria-label={`Flame graph of ${tree.rows} spans; the rows below hold the same spans`}
        style={{ maxHeight: `${MOST_PX}px` }}
        onScroll={(event) => setTop(event.currentTarget.scrollTop)}
        onClick={(event) => {
          const row = rowAt(event);
          if (row >= 0) onSelect(row);
        }}
        onDblClick={(event) => {
          const row = rowAt(event);
          if (row >= 0) onZoomTo(row);
        }}
        onMouseMove={(event) => {
          const row = rowAt(event);
          const frame = box.current!.getBoundingClientRect();
          setHovered(row < 0 ? null : { row, x: event.clientX - frame.left, y: event.clientY - frame.top });
        }}
        onMouseLeave={() => setHovered(null)}
      >
        <div style={{ height: `${tree.lanes * LANE_PX}px` }}>
          <canvas
            ref={canvas}
            aria-hidden="true"
            style={{ height: `${(last - first) * LANE_PX}px`, transform: `translateY(${first * LANE_PX}px)` }}
          />
        </div>
      </div>
      {hovered && hovered.row < tree.rows && (
        <div
          class="flame-tip"
          style={{ left: `${Math.min(hovered.x + 12, width - 220)}px`, top: `${hovered.y + 16}px` }}
        >
          {tree.services[tree.service[hovered.row]!]}: {tree.names[tree.name[hovered.row]!]} ·{" "}
          {duration(tree.duration[hovered.row]! * 1_000)}
        </div>
      )}
    </div>
  );
}
