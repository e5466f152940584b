/**
 * Which rows of a long list are on the screen, for lists of any length.
 *
 * A browser cuts an element at about 33 million pixels divided by the ratio of its pixels, silently. So the scroll range is at
 * most `MOST_PX`, and in longer lists a pixel of it stands for several of content.
 */

import { useCallback, useLayoutEffect, useRef, useState } from "preact/hooks";

const MOST_PX = 8_000_000;

export interface Window {
  /** The first row on the screen, and the one after the last. */
  from: number;
  until: number;
  /** The height of the scroll range, and where in it row `from` lies, in pixels. */
  height: number;
  top: number;
}

/** Computes the rows that are on the screen. */
export function windowOf(rows: number, rowPx: number, viewPx: number, scrollTop: number): Window {
  const full = rows * rowPx;
  const height = Math.min(full, MOST_PX);
  const share = full > height && height > viewPx ? scrollTop / (height - viewPx) : 0;
  // The offset in the content: the same as in the scroll range unless that is shorter.
  const offset = full > height ? share * (full - viewPx) : scrollTop;
  const from = Math.max(0, Math.floor(offset / rowPx));
  const until = Math.min(rows, Math.ceil((offset + viewPx) / rowPx) + 1);
  return { from, until, height, top: scrollTop - (offset - from * rowPx) };
}

/** Returns the scroll position at which a row is on the screen, or null if it is there already. */
export function scrollTo(row: number, rows: number, rowPx: number, viewPx: number, scrollTop: number): number | null {
  const full = rows * rowPx;
  const height = Math.min(full, MOST_PX);
  const scale = full > height ? (height - viewPx) / (full - viewPx) : 1;
  const offset = scrollTop / scale;
  const [top, bottom] = [row * rowPx, (row + 1) * rowPx];
  if (top < offset) return top * scale;
  if (bottom > offset + viewPx) return (bottom - viewPx) * scale;
  return null;
}

export interface Virtual extends Window {
  /** For the element that scrolls. */
  frame: (element: HTMLElement | null) => void;
  onScroll: () => void;
  show: (row: number) => void;
}

/** Follows the scrolling of a frame with `headPx` of fixed content above its rows. */
export function useVirtual(rows: number, rowPx: number, headPx = 0): Virtual {
  const element = useRef<HTMLElement | null>(null);
  const [view, setView] = useState({ scrollTop: 0, viewPx: 600 });
  const measure = useCallback(() => {
    const found = element.current;
    if (found) setView({ scrollTop: found.scrollTop, viewPx: Math.max(rowPx, found.clientHeight - headPx) });
  }, [rowPx, headPx]);
  const frame = useCallback((found: HTMLElement | null) => {
    element.current = found;
  }, []);
  useLayoutEffect(() => {
    measure();
    if (!element.current) return;
    const observer = new ResizeObserver(measure);
    observer.observe(element.current);
    return () => observer.disconnect();
  }, [measure]);
  const show = useCallback(
    (row: number) => {
      const found = element.current;
      if (!found) return;
      const wanted = scrollTo(row, rows, rowPx, Math.max(rowPx, found.clientHeight - headPx), found.scrollTop);
      if (wanted !== null) found.scrollTop = wanted;
      measure();
    },
    [rows, rowPx, headPx, measure],
  );
  return { ...windowOf(rows, rowPx, view.viewPx, view.scrollTop), frame, onScroll: measure, show };
}
