import { useEffect, useRef, useState } from "preact/hooks";
import type { Heatmap } from "../../api/traceAnalysis";
import { isDark, zone } from "../../app/preferences";
import { boxOf, cellAt, cellsOf, describe, draw, rectangle, type Box, type CellBox } from "./heat";

export const HEIGHT = 230;
const KEYS = "Arrow keys move a cell, with Shift they widen the box, Enter takes it, Escape removes it.";

interface Props {
  map: Heatmap;
  box: Box | null;
  onBox: (box: Box | null) => void;
}

/** The heat map on a canvas, with the box above it: drawn by dragging, or by the keys. */
export function HeatPicture({ map, box, onBox }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [drawn, setDrawn] = useState<CellBox | null>(null);
  const [under, setUnder] = useState<CellBox | null>(null);
  const dragging = useRef(false);
  const size = { width, height: HEIGHT };
  const [dark, inZone] = [isDark.value, zone.value];
  useEffect(() => {
    const resize = new ResizeObserver(() => setWidth(frame.current?.clientWidth ?? 0));
    if (frame.current) resize.observe(frame.current);
    return () => resize.disconnect();
  }, []);
  useEffect(() => {
    if (canvas.current && width > 0) draw(canvas.current, map, size);
  }, [map, width, dark, inZone]);

  const at = (event: PointerEvent) => {
    const rect = frame.current!.getBoundingClientRect();
    return cellAt(map, size, event.clientX - rect.left, event.clientY - rect.top);
  };
  const finish = () => {
    dragging.current = false;
    if (drawn) onBox(boxOf(map, drawn));
    setDrawn(null);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const moves: Record<string, [number, number]> = {
      ArrowLeft: [-1, 0],
      ArrowRight: [1, 0],
      ArrowUp: [0, 1],
      ArrowDown: [0, -1],
    };
    const move = moves[event.key];
    const chosen = drawn ?? (box && cellsOf(map, box));
    if (move) {
      event.preventDefault();
      setDrawn(moved(map, chosen, move, event.shiftKey));
    } else if (event.key === "Enter" && drawn) {
      event.preventDefault();
      finish();
    } else if (event.key === "Escape" && (drawn || box)) {
      event.preventDefault();
      if (!drawn) onBox(null);
      setDrawn(null);
    }
  };
  const shown = drawn ?? (box && cellsOf(map, box));
  const [left, top, wide, high] = shown && width > 0 ? rectangle(map, size, shown) : [0, 0, 0, 0];
  const described = drawn ?? under;
  return (
    <>
      <div
        ref={frame}
        class="heat"
        role="group"
        tabIndex={0}
        aria-label={`Latency over time, ${map.spans.toLocaleString("en")} spans. ${KEYS}`}
        style={{ height: `${HEIGHT}px` }}
        onKeyDown={onKeyDown}
        onPointerDown={(event) => {
          if (event.button !== 0) return;
          const cell = at(event);
          dragging.current = true;
          frame.current!.setPointerCapture(event.pointerId);
          setDrawn({ time: [cell.time, cell.time], duration: [cell.duration, cell.duration] });
        }}
        onPointerMove={(event) => {
          const cell = at(event);
          if (dragging.current && drawn) {
            setDrawn({ time: [drawn.time[0], cell.time], duration: [drawn.duration[0], cell.duration] });
          } else {
            setUnder({ time: [cell.time, cell.time], duration: [cell.duration, cell.duration] });
          }
        }}
        onPointerLeave={() => setUnder(null)}
        onPointerUp={() => dragging.current && finish()}
        onPointerCancel={() => {
          dragging.current = false;
          setDrawn(null);
        }}
      >
        <canvas ref={canvas} aria-hidden="true" />
        {shown && (
          <div
            class="heat-box"
            style={{ left: `${left}px`, top: `${top}px`, width: `${wide}px`, height: `${high}px` }}
          />
        )}
      </div>
      <p class="hint heat-text" aria-live={drawn && !dragging.current ? "polite" : "off"}>
        {described
          ? describe(map, described)
          : "Drag a box around what looks odd, to see what sets it apart. Darker: more spans. ✕: some failed."}
      </p>
    </>
  );
}

function moved(map: Heatmap, chosen: CellBox | null, [across, up]: [number, number], widen: boolean): CellBox {
  const rows = Math.max(1, map.durations_ns.length - 1);
  if (!chosen) {
    const [time, duration] = [map.times - 1, rows - 1];
    return { time: [time, time], duration: [duration, duration] };
  }
  const time = Math.max(0, Math.min(map.times - 1, chosen.time[1] + across));
  const duration = Math.max(0, Math.min(rows - 1, chosen.duration[1] + up));
  return widen
    ? { time: [chosen.time[0], time], duration: [chosen.duration[0], duration] }
    : { time: [time, time], duration: [duration, duration] };
}
