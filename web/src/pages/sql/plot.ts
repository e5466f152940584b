/** Charts of results by uPlot: lines, bars and points over numbers, times or names. */

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { cssValue } from "../../format/colours";
import { TIMES } from "../../components/uplot";

export interface PlotData {
  kind: "line" | "bar" | "scatter";
  x: number[];
  /** Names of the places on the x axis; without, x are numbers, or seconds if `isTime`. */
  names: string[] | null;
  isTime: boolean;
  utc: boolean;
  series: { label: string; values: (number | null)[] }[];
}

const HEIGHT = 380;
const amount = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });

export function plot(box: HTMLElement, data: PlotData): uPlot {
  const [muted, line] = [cssValue("--muted"), cssValue("--line")];
  const axis = {
    stroke: muted,
    font: `11px ${cssValue("--font")}`,
    grid: { stroke: line, width: 1 },
    ticks: { stroke: line, width: 1 },
  };
  const bars = data.kind === "bar";
  const all = data.series.length;
  const name = (value: number) => data.names?.[Math.round(value)] ?? "";
  const least = Math.min(0, ...data.series.flatMap((each) => bounds(each.values)));
  return new uPlot(
    {
      width: box.clientWidth,
      height: HEIGHT,
      tzDate: (seconds) => (data.utc ? uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC") : new Date(seconds * 1000)),
      cursor: { drag: { x: true, y: data.kind === "scatter" } },
      scales: {
        x: {
          time: data.isTime,
          ...(data.names ? { range: (_chart, low, high) => [(low ?? 0) - 0.5, (high ?? 0) + 0.5] } : {}),
        },
        ...(bars ? { y: { range: (_chart, _low, high) => [least * 1.05, high > 0 ? high * 1.05 : 1] } } : {}),
      },
      axes: [
        {
          ...axis,
          ...(data.names
            ? {
                splits: (_chart, _axis, low, high) => places(low, high, box.clientWidth),
                values: (_chart, splits) => splits.map((each) => shortened(name(each))),
              }
            : data.isTime
              ? { values: TIMES }
              : {}),
        },
        { ...axis, size: 70, values: (_chart, values) => values.map((value) => amount.format(value)) },
      ],
      series: [
        data.names
          ? { label: "x", value: (_chart, value) => (value === null ? "–" : name(value)) }
          : data.isTime
            ? { label: "x", value: "{YYYY}-{MM}-{DD} {HH}:{mm}:{ss}" }
            : { label: "x", value: (_chart, value) => (value === null ? "–" : String(value)) },
        ...data.series.map((each, place): uPlot.Series => {
          const colour = cssValue(`--series-${place % 10}`);
          return {
            label: each.label,
            stroke: colour,
            spanGaps: true,
            value: (_chart, value) => (value === null || value === undefined ? "–" : String(value)),
            ...(bars
              ? { fill: colour, paths: barsOf(place, all), points: { show: false } }
              : data.kind === "scatter"
                ? { paths: () => null, points: { show: true, size: 5, fill: colour, stroke: colour } }
                : { width: 1.5 }),
          };
        }),
      ],
    },
    [data.x, ...data.series.map((each) => each.values)] as uPlot.AlignedData,
    box,
  );
}

/** Bars beside each other, one for each series. */
function barsOf(place: number, all: number): uPlot.Series.PathBuilder {
  const share = 0.8 / all;
  return (chart, series, from, until) => {
    const step = Math.abs(chart.valToPos(1, "x") - chart.valToPos(0, "x")) * devicePixelRatio;
    const width = Math.max(1, step * share);
    const shift = (place - (all - 1) / 2) * width;
    const path = new Path2D();
    const zero = chart.valToPos(0, "y", true);
    for (let at = from; at <= until; at++) {
      const value = chart.data[series]![at];
      if (value === null || value === undefined) continue;
      const x = chart.valToPos(chart.data[0]![at]!, "x", true) + shift;
      const y = chart.valToPos(value, "y", true);
      path.rect(x - width / 2, Math.min(y, zero), width, Math.abs(zero - y));
    }
    return { fill: path, stroke: path };
  };
}

function bounds(values: readonly (number | null)[]): number[] {
  let least = 0;
  for (const value of values) if (value !== null && value < least) least = value;
  return [least];
}

/** Which places of a named axis have a mark: as many as there is room for. */
function places(low: number, high: number, width: number): number[] {
  const step = Math.max(1, Math.ceil((high - low) / Math.max(2, width / 110)));
  const found = [];
  for (let at = Math.ceil(low); at <= high; at += step) found.push(at);
  return found;
}

function shortened(text: string): string {
  return text.length > 16 ? `${text.slice(0, 15)}…` : text;
}
