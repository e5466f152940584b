/**
 * Which rows of a long list are on the screen, for lists of any length.
 *
 * A browser cuts an element at about 33 million pixels divided by the ratio of its pixels, silently. So the scroll range is at
 * most `MOST_PX`, and in longer lists a pixel of it stands for several of content; the wheel still moves by pixels of content.
 */

import { useCallback, useLayoutEffect, useRef, useState } from "preact/hooks";

const MOST_PX = 8_000_000;
// A wheel that counts in lines or pages, as some do.
const LINE_PX = 20;

export interface Window {
  /** The first row on the screen, and the one after the last. */
  from: number;
  until: number;
  /** The height of the scroll range, and where in it row `from` lies, in pixels. */
  height: number;
  top: number;
}

/** Returns how many pixels of the scroll range stand for one of content: 1 unless the list is longer than the range may be. */
function scaleOf(rows: number, rowPx: number, viewPx: number): number {
  const full = rows * rowPx;
  return full > MOST_PX && full > viewPx ? (MOST_PX - viewPx) / (full - viewPx) : 1;
}

/** Computes the rows that are on the screen; `offset` is where the screen begins in the content, if that is known exactly. */
export function windowOf(rows: number, rowPx: number, viewPx: number, scrollTop: number, offset?: number): Window {
  const at = offset ?? scrollTop / scaleOf(rows, rowPx, viewPx);
  const from = Math.max(0, Math.min(rows, Math.floor(at / rowPx)));
  const until = Math.min(rows, Math.ceil((at + viewPx) / rowPx) + 1);
  return { from, until, height: Math.min(rows * rowPx, MOST_PX), top: scrollTop - (at - from * rowPx) };
}

/** Returns where in the content the screen begins when a row is on it, or null if it is there already. */
export function offsetOf(row: number, rowPx: number, viewPx: number, offset: number): number | null {
  const [top, bottom] = [row * rowPx, (row + 1) * rowPx];
  if (top < offset) return top;
  if (bottom > offset + viewPx) return bottom - viewPx;
  return null;
}

export interface Virtual extends Window {
  /** For the element that scrolls. */
  frame: (element: HTMLElement | null) => void;
  onScroll: () => void;
  /** Scrolls until a row is on the screen; `middle` puts it there if it was not on the screen. */
  show: (row: number, middle?: boolean) => void;
}

interface View {
  scrollTop: number;
  viewPx: number;
  /** Where the screen begins in the content. */
  offset: number;
}

/** Follows the scrolling of a frame with `headPx` of fixed content above its rows. */
export function useVirtual(rows: number, rowPx: number, headPx = 0): Virtual {
  const element = useRef<HTMLElement | null>(null);
  const [view, setView] = useState<View>({ scrollTop: 0, viewPx: 600, offset: 0 });
  const now = useRef({ rows, ...view });
  now.current.rows = rows;
  const take = useCallback((next: View) => {
    Object.assign(now.current, next);
    setView((before) =>
      before.scrollTop === next.scrollTop && before.viewPx === next.viewPx && before.offset === next.offset
        ? before
        : next,
    );
  }, []);
  const measure = useCallback(() => {
    const found = element.current;
    if (!found) return;
    const viewPx = Math.max(rowPx, found.clientHeight - headPx);
    const { scrollTop } = found;
    // The browser rounds scroll positions, so the exact one is kept until somebody moves the scroll bar.
    const moved = Math.abs(scrollTop - now.current.scrollTop) > 1;
    const scale = scaleOf(now.current.rows, rowPx, viewPx);
    take({ scrollTop, viewPx, offset: moved || scale === 1 ? scrollTop / scale : now.current.offset });
  }, [rowPx, headPx, take]);
  const moveTo = useCallback(
    (wanted: number) => {
      const found = element.current;
      if (!found) return;
      const viewPx = Math.max(rowPx, found.clientHeight - headPx);
      const offset = Math.max(0, Math.min(now.current.rows * rowPx - viewPx, wanted));
      const scale = scaleOf(now.current.rows, rowPx, viewPx);
      found.scrollTop = offset * scale;
      take({ scrollTop: found.scrollTop, viewPx, offset: scale === 1 ? found.scrollTop : offset });
    },
    [rowPx, headPx, take],
  );
  const frame = useCallback((found: HTMLElement | null) => {
    element.current = found;
  }, []);
  useLayoutEffect(() => {
    const found = element.current;
    measure();
    if (!found) return;
    const observer = new ResizeObserver(measure);
    observer.observe(found);
    const onWheel = (event: WheelEvent) => {
      const isScaled = scaleOf(now.current.rows, rowPx, now.current.viewPx) < 1;
      if (!isScaled || event.ctrlKey || event.shiftKey || event.defaultPrevented || event.deltaY === 0) return;
      event.preventDefault();
      moveTo(now.current.offset + event.deltaY * [1, LINE_PX, now.current.viewPx][event.deltaMode]!);
    };
    found.addEventListener("wheel", onWheel, { passive: false });
    return () => {
      observer.disconnect();
      found.removeEventListener("wheel", onWheel);
    };
  }, [measure, moveTo, rowPx]);
  // Fewer rows than before: the browser has moved the scroll bar.
  useLayoutEffect(measure, [rows, measure]);
  const show = useCallback(
    (row: number, middle = false) => {
      const found = element.current;
      if (!found) return;
      const viewPx = Math.max(rowPx, found.clientHeight - headPx);
      const wanted = offsetOf(row, rowPx, viewPx, now.current.offset);
      if (wanted !== null) moveTo(middle ? row * rowPx - viewPx / 2 : wanted);
    },
    [rowPx, headPx, moveTo],
  );
  return { ...windowOf(rows, rowPx, view.viewPx, view.scrollTop, view.offset), frame, onScroll: measure, show };
}
