import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { isDark } from "../../app/preferences";
import { drawWhole, paletteOf, tickLabel, ticks, type Zoom } from "./bars";
import type { Picture } from "./figures";
import type { Tree } from "./tree";

/** Returns the width of an element, and follows it. */
export function useWidth<E extends HTMLElement>(): [{ current: E | null }, number] {
  const element = useRef<E>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    if (!element.current) return;
    const observer = new ResizeObserver(() => element.current && setWidth(element.current.clientWidth));
    observer.observe(element.current);
    setWidth(element.current.clientWidth);
    return () => observer.disconnect();
  }, []);
  return [element, width];
}

/** Follows a drag over a range of time; returns the handler, and the range while it lasts. */
export function useDrag(
  shown: Zoom,
  width: number,
  onZoom: (zoom: Zoom) => void,
): [(event: PointerEvent) => void, Zoom | null] {
  const [dragged, setDragged] = useState<Zoom | null>(null);
  const onPointerDown = (event: PointerEvent) => {
    if (event.button !== 0 || width <= 0) return;
    const box = event.currentTarget as HTMLElement;
    const left = box.getBoundingClientRect().left;
    const at = (x: number) =>
      shown.from + (Math.max(0, Math.min(width, x - left)) / width) * (shown.until - shown.from);
    const first = event.clientX;
    const range = (x: number) => ({ from: Math.min(at(first), at(x)), until: Math.max(at(first), at(x)) });
    box.setPointerCapture(event.pointerId);
    const onMove = (moved: PointerEvent) => setDragged(range(moved.clientX));
    const onUp = (up: PointerEvent) => {
      box.removeEventListener("pointermove", onMove);
      box.removeEventListener("pointerup", onUp);
      box.removeEventListener("pointercancel", onUp);
      setDragged(null);
      if (up.type === "pointerup" && Math.abs(up.clientX - first) > 4) onZoom(range(up.clientX));
    };
    box.addEventListener("pointermove", onMove);
    box.addEventListener("pointerup", onUp);
    box.addEventListener("pointercancel", onUp);
  };
  return [onPointerDown, dragged];
}

interface Props {
  tree: Tree;
  picture: Picture | null;
  zoom: Zoom;
  onZoom: (zoom: Zoom | null) => void;
}

const HEIGHT = 54;

/** The whole trace in small; drag to zoom in time, double-click to see all of it again. */
export function Overview({ tree, picture, zoom, onZoom }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [box, width] = useWidth<HTMLDivElement>();
  const dark = isDark.value;
  const palette = useMemo(() => paletteOf(tree.services), [tree.services, dark]);
  useEffect(() => {
    if (canvas.current && width) drawWhole(canvas.current, tree, picture, width, HEIGHT, palette);
  }, [tree, picture, width, palette]);
  const whole = { from: 0, until: tree.length };
  const [onPointerDown, dragged] = useDrag(whole, width, onZoom);
  const share = (us: number) => `${((100 * us) / tree.length).toFixed(3)}%`;
  const chosen = dragged ?? zoom;
  const isZoomed = dragged !== null || zoom.from > 0 || zoom.until < tree.length;
  return (
    <div
      class="overview"
      ref={box}
      title="Drag to zoom in time; double-click shows all"
      onPointerDown={onPointerDown}
      onDblClick={() => onZoom(null)}
    >
      <canvas ref={canvas} aria-hidden="true" style={{ height: `${HEIGHT}px` }} />
      {isZoomed && (
        <>
          <div class="overview-shade" style={{ left: 0, width: share(chosen.from) }} />
          <div class="overview-shade" style={{ left: share(chosen.until), right: 0 }} />
          <div class="overview-range" style={{ left: share(chosen.from), width: share(chosen.until - chosen.from) }} />
        </>
      )}
      <div class="overview-axis" aria-hidden="true">
        {ticks(whole, Math.max(1, Math.floor(width / 120))).map((at) => (
          <span key={at} style={{ left: share(at) }}>
            {tickLabel(at)}
          </span>
        ))}
      </div>
    </div>
  );
}
