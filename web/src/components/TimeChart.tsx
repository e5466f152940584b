import { useEffect, useRef } from "preact/hooks";
import type uPlot from "uplot";
import { isDark, zone } from "../app/preferences";
import { cssValue } from "../format/colours";

export interface Series {
  label: string;
  values: readonly (number | null)[];
  /** A colour of the palette, 0 to 9, or a tone. */
  colour: number | "error" | "accent";
  /** Bars instead of a line. */
  bars?: boolean;
}

interface Props {
  /** What it shows: title for screen readers, who also get the table of its values. */
  label: string;
  /** Seconds since 1970. */
  times: readonly number[];
  series: readonly Series[];
  /** How a value is written, with its unit. */
  format: (value: number) => string;
  height?: number;
  /** Called with the seconds between which a person dragged. */
  onZoom?: (from: number, until: number) => void;
}

/** Values over time, drawn by uPlot, which is loaded with the first chart. Drag to choose a range. */
export function TimeChart({ label, times, series, format, height = 180, onZoom }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const zoom = useRef(onZoom);
  zoom.current = onZoom;
  const [dark, utc] = [isDark.value, zone.value === "utc"];
  useEffect(() => {
    let chart: uPlot | undefined;
    let gone = false;
    const resize = new ResizeObserver(() => box.current && chart?.setSize({ width: box.current.clientWidth, height }));
    void import("./uplot").then(({ draw }) => {
      if (gone || !box.current) return;
      chart = draw(box.current, {
        times,
        series,
        format,
        height,
        utc,
        zoom: (from, until) => zoom.current?.(from, until),
      });
      resize.observe(box.current);
    });
    return () => {
      gone = true;
      resize.disconnect();
      chart?.destroy();
    };
  }, [times, series, format, height, dark, utc]);
  const last = times.length - 1;
  return (
    <figure class="chart" aria-label={label}>
      <div ref={box} aria-hidden="true" style={{ minHeight: `${height}px` }} />
      <figcaption class="visually-hidden">
        {label}:{" "}
        {series.map((each) => {
          const known = each.values.filter((value): value is number => value !== null);
          const [least, most] = [Math.min(...known), Math.max(...known)];
          const latest = each.values[last];
          return known.length
            ? `${each.label} between ${format(least)} and ${format(most)}, last ${latest === null || latest === undefined ? "none" : format(latest)}. `
            : `${each.label}: no values. `;
        })}
      </figcaption>
    </figure>
  );
}

/** Returns the colour of a series as it is now. */
export function seriesColour(colour: Series["colour"]): string {
  return cssValue(typeof colour === "number" ? `--series-${colour}` : `--${colour}`);
}
