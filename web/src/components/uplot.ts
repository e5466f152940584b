/** Values over time, drawn by uPlot. */

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { cssValue } from "../format/colours";
import { seriesColour, type Series } from "./TimeChart";

interface Drawing {
  times: readonly number[];
  series: readonly Series[];
  format: (value: number) => string;
  height: number;
  utc: boolean;
  zoom: (from: number, until: number) => void;
}

const DAY = "\n{YYYY}-{MM}-{DD}";
// The steps between marks in seconds, from which on a form is used; the day stands below where it begins.
export const TIMES = [
  [31_536_000, "{YYYY}", null, null, null, null, null, null, 1],
  [2_419_200, "{YYYY}-{MM}", null, null, null, null, null, null, 1],
  [86_400, "{MM}-{DD}", "\n{YYYY}", null, null, null, null, null, 1],
  [60, "{HH}:{mm}", DAY, null, DAY, null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", DAY, null, DAY, null, null, null, 1],
  [0.001, "{ss}.{fff}", DAY, null, DAY, null, "\n{HH}:{mm}", null, 1],
] as uPlot.Axis.Values;

export function draw(box: HTMLElement, { times, series, format, height, utc, zoom }: Drawing): uPlot {
  const [muted, line] = [cssValue("--muted"), cssValue("--line")];
  const font = `11px ${cssValue("--font")}`;
  const axis = { stroke: muted, font, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
  const bars = uPlot.paths.bars!({ size: [0.8, 40], align: 1 });
  return new uPlot(
    {
      width: box.clientWidth,
      height,
      tzDate: (seconds) => (utc ? uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC") : new Date(seconds * 1000)),
      cursor: { drag: { x: true, y: false, setScale: false } },
      legend: { live: true, isolate: true },
      hooks: {
        setSelect: [
          (chart) => {
            if (chart.select.width < 3) return;
            zoom(chart.posToVal(chart.select.left, "x"), chart.posToVal(chart.select.left + chart.select.width, "x"));
            chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          },
        ],
      },
      axes: [
        { ...axis, values: TIMES },
        { ...axis, size: 64, values: (_chart, values) => values.map((value) => format(value)) },
      ],
      scales: { y: { range: (_chart, _least, most) => [0, most > 0 ? most * 1.08 : 1] } },
      series: [
        { value: "{YYYY}-{MM}-{DD} {HH}:{mm}:{ss}" },
        ...series.map((each) => {
          const colour = seriesColour(each.colour);
          return {
            label: each.label,
            stroke: colour,
            width: 1.5,
            ...(each.bars ? { paths: bars, fill: colour } : {}),
            points: { show: times.length < 2 },
            value: (_chart: uPlot, value: number | null) => (value === null ? "–" : format(value)),
          };
        }),
      ],
    },
    [times as number[], ...series.map((each) => each.values as (number | null)[])],
    box,
  );
}
