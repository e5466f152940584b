/** The geometry of a heat map: places of cells on a canvas, boxes of cells, and what they hold. */

import type { Heatmap, HeatmapCell } from "../../api/traceAnalysis";
import { cssValue } from "../../format/colours";
import { counted, duration } from "../../format/numbers";
import { shortTime, zoneName } from "../../format/times";

export const MARGIN = { left: 66, right: 8, top: 8, bottom: 24 };

/** A box of cells, both ends included. */
export interface CellBox {
  time: [number, number];
  duration: [number, number];
}

/** A box of times and durations, the ends not included. */
export interface Box {
  start: bigint;
  end: bigint;
  shortest: bigint;
  longest: bigint;
}

export function writeBox(box: Box): string {
  return [box.start, box.end, box.shortest, box.longest].join("_");
}

export function readBox(text: string): Box | null {
  const parts = /^(\d{1,19})_(\d{1,19})_(\d{1,19})_(\d{1,19})$/.exec(text);
  if (!parts) return null;
  const [start, end, shortest, longest] = parts.slice(1).map(BigInt) as [bigint, bigint, bigint, bigint];
  return start < end && shortest < longest ? { start, end, shortest, longest } : null;
}

function ordered(pair: [number, number]): [number, number] {
  return pair[0] <= pair[1] ? pair : [pair[1], pair[0]];
}

/** Returns the times and durations of a box of cells. */
export function boxOf(map: Heatmap, cells: CellBox): Box {
  const [first, last] = ordered(cells.time);
  const [low, high] = ordered(cells.duration);
  const end = map.start_ns + BigInt(last + 1) * BigInt(map.step_ns);
  return {
    start: map.start_ns + BigInt(first) * BigInt(map.step_ns),
    end: end < BigInt(map.end_ns) ? end : BigInt(map.end_ns),
    shortest: BigInt(map.durations_ns[low] ?? 0),
    longest: BigInt(map.durations_ns[high + 1] ?? map.durations_ns.at(-1) ?? 1),
  };
}

/** Returns the cells that a box covers; null if none of the map is in it. */
export function cellsOf(map: Heatmap, box: Box): CellBox | null {
  const step = BigInt(map.step_ns);
  const first = Number((box.start - BigInt(map.start_ns)) / step);
  const last = Number((box.end - 1n - BigInt(map.start_ns)) / step);
  const rows = map.durations_ns.length - 1;
  const low = map.durations_ns.findIndex((_, row) => row < rows && BigInt(map.durations_ns[row + 1]!) > box.shortest);
  const high = map.durations_ns.findLastIndex((each, row) => row < rows && BigInt(each) < box.longest);
  if (last < 0 || first >= map.times || low < 0 || high < low) return null;
  return { time: [Math.max(0, first), Math.min(map.times - 1, last)], duration: [low, high] };
}

const LEAST_ROW_PX = 8;

/** Returns the map with neighbouring durations put together, so that its rows are high enough to be seen. */
export function readable(map: Heatmap, height: number): Heatmap {
  const rows = map.durations_ns.length - 1;
  const together = Math.ceil((LEAST_ROW_PX * rows) / (height - MARGIN.top - MARGIN.bottom));
  if (together < 2) return map;
  const bounds = map.durations_ns.filter((_, row) => row % together === 0 && row < rows);
  const cells = new Map<string, HeatmapCell>();
  for (const cell of map.cells) {
    const row = Math.floor(cell.duration / together);
    const key = `${cell.time} ${row}`;
    const before = cells.get(key);
    cells.set(key, {
      time: cell.time,
      duration: row,
      count: cell.count + (before?.count ?? 0),
      errors: cell.errors + (before?.errors ?? 0),
      trace_ids: [...cell.trace_ids, ...(before?.trace_ids ?? [])],
    });
  }
  return { ...map, durations_ns: [...bounds, map.durations_ns.at(-1)!], cells: [...cells.values()] };
}

/** Returns what a box of cells holds, in words. */
export function describe(map: Heatmap, cells: CellBox): string {
  const box = boxOf(map, cells);
  const [first, last] = ordered(cells.time);
  const [low, high] = ordered(cells.duration);
  let [spans, errors] = [0, 0];
  for (const cell of map.cells) {
    if (cell.time < first || cell.time > last || cell.duration < low || cell.duration > high) continue;
    spans += cell.count;
    errors += cell.errors;
  }
  const failed = errors ? `, ${errors === spans ? "all" : errors.toLocaleString("en")} with errors` : "";
  return `${nameOfBox(box)}: ${counted(spans, "span")}${failed}`;
}

/** 2026-11-17 18:00:00 – 18:30:00 UTC, 85 ms – 102 ms. */
export function nameOfBox(box: Box): string {
  const [from, until] = [shortTime(box.start), shortTime(box.end)];
  const sameDay = from.slice(0, 10) === until.slice(0, 10);
  return `${from} – ${sameDay ? until.slice(11) : until} ${zoneName()}, ${duration(box.shortest)} – ${duration(box.longest)}`;
}

export interface Frame {
  width: number;
  height: number;
}

/** Returns the rectangle of cells on the picture: left, top, width, height. */
export function rectangle(map: Heatmap, frame: Frame, cells: CellBox): [number, number, number, number] {
  const across = (frame.width - MARGIN.left - MARGIN.right) / map.times;
  const rows = Math.max(1, map.durations_ns.length - 1);
  const down = (frame.height - MARGIN.top - MARGIN.bottom) / rows;
  const [first, last] = ordered(cells.time);
  const [low, high] = ordered(cells.duration);
  return [
    MARGIN.left + first * across,
    MARGIN.top + (rows - 1 - high) * down,
    (last - first + 1) * across,
    (high - low + 1) * down,
  ];
}

/** Returns the cell at a place of the picture, or the nearest. */
export function cellAt(map: Heatmap, frame: Frame, x: number, y: number): { time: number; duration: number } {
  const rows = Math.max(1, map.durations_ns.length - 1);
  const across = (x - MARGIN.left) / (frame.width - MARGIN.left - MARGIN.right);
  const down = (y - MARGIN.top) / (frame.height - MARGIN.top - MARGIN.bottom);
  const within = (share: number, all: number) => Math.max(0, Math.min(all - 1, Math.floor(share * all)));
  return { time: within(across, map.times), duration: rows - 1 - within(down, rows) };
}

/** Draws the map; colours are those of the style sheet now. */
export function draw(canvas: HTMLCanvasElement, map: Heatmap, frame: Frame): void {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(frame.width * ratio);
  canvas.height = Math.round(frame.height * ratio);
  const pen = canvas.getContext("2d");
  if (!pen) return;
  pen.scale(ratio, ratio);
  drawAxes(pen, map, frame);
  const most = map.cells.reduce((top, cell) => Math.max(top, cell.count), 1);
  const [accent, error] = [cssValue("--accent"), cssValue("--error")];
  for (const cell of map.cells) {
    const [left, top, width, height] = rectangle(map, frame, asBox(cell));
    pen.globalAlpha = 0.18 + 0.82 * (most > 1 ? Math.log(cell.count) / Math.log(most) : 1);
    pen.fillStyle = accent;
    pen.fillRect(left + 0.5, top + 0.5, Math.max(1, width - 1), Math.max(1, height - 1));
    pen.globalAlpha = 1;
    if (cell.errors) drawCross(pen, error, [left, top, width, height]);
  }
}

export function asBox(cell: Pick<HeatmapCell, "time" | "duration">): CellBox {
  return { time: [cell.time, cell.time], duration: [cell.duration, cell.duration] };
}

/** A cross in a disc: seen by its shape, on any shade of the cell. */
function drawCross(pen: CanvasRenderingContext2D, colour: string, at: [number, number, number, number]): void {
  const [left, top, width, height] = at;
  const [x, y, size] = [left + width / 2, top + height / 2, Math.max(3, Math.min(width, height, 12) / 2 - 1)];
  pen.fillStyle = cssValue("--surface");
  pen.beginPath();
  pen.arc(x, y, size + 1, 0, 2 * Math.PI);
  pen.fill();
  pen.strokeStyle = colour;
  pen.lineWidth = 1.8;
  pen.beginPath();
  pen.moveTo(x - size / 1.5, y - size / 1.5);
  pen.lineTo(x + size / 1.5, y + size / 1.5);
  pen.moveTo(x + size / 1.5, y - size / 1.5);
  pen.lineTo(x - size / 1.5, y + size / 1.5);
  pen.stroke();
}

const LABEL_PX = 110;
const ROW_LABEL_PX = 22;

function drawAxes(pen: CanvasRenderingContext2D, map: Heatmap, frame: Frame): void {
  pen.font = `11px ${cssValue("--font")}`;
  pen.fillStyle = cssValue("--muted");
  pen.strokeStyle = cssValue("--line");
  const rows = Math.max(1, map.durations_ns.length - 1);
  const [inner, high] = [frame.width - MARGIN.left - MARGIN.right, frame.height - MARGIN.top - MARGIN.bottom];
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  const every = Math.max(1, Math.ceil(ROW_LABEL_PX / (high / rows)));
  for (let row = 0; row <= rows; row += every) {
    const y = MARGIN.top + high - (row / rows) * high;
    pen.fillText(duration(map.durations_ns[row] ?? 0), MARGIN.left - 8, y);
    line(pen, MARGIN.left, y, MARGIN.left + inner, y);
  }
  pen.textBaseline = "top";
  const marks = Math.max(1, Math.floor(inner / LABEL_PX));
  const length = BigInt(map.end_ns) - BigInt(map.start_ns);
  const days = length > 86_400_000_000_000n;
  for (let mark = 0; mark <= marks; mark++) {
    const at = shortTime(BigInt(map.start_ns) + (length * BigInt(mark)) / BigInt(marks));
    const x = MARGIN.left + (inner * mark) / marks;
    pen.textAlign = mark === 0 ? "left" : mark === marks ? "right" : "center";
    pen.fillText(days ? at.slice(5, 16) : at.slice(11), x, frame.height - MARGIN.bottom + 6);
  }
}

function line(pen: CanvasRenderingContext2D, ...[x, y, toX, toY]: [number, number, number, number]): void {
  pen.beginPath();
  pen.moveTo(x, y);
  pen.lineTo(toX, toY);
  pen.stroke();
}
