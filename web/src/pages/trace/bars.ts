/** Draws spans on canvases: the bars of rows on the screen, and the whole trace in small. */

import { colourOf, cssValue } from "../../format/colours";
import { duration } from "../../format/numbers";
import { CRITICAL, EARLY, ERROR, LATE, type Tree } from "./tree";
import type { Picture } from "./figures";

/** Microseconds from the start of the trace. */
export interface Zoom {
  from: number;
  until: number;
}

export interface Palette {
  services: string[];
  error: string;
  text: string;
  muted: string;
  line: string;
  accent: string;
  surface: string;
  font: string;
}

/** Reads the colours as they are now; made again when they change. */
export function paletteOf(services: readonly string[]): Palette {
  const series = Array.from({ length: 10 }, (_none, index) => cssValue(`--series-${index}`));
  return {
    services: services.map((service) => series[colourOf(service)]!),
    error: cssValue("--error"),
    text: cssValue("--text"),
    muted: cssValue("--muted"),
    line: cssValue("--line"),
    accent: cssValue("--accent"),
    surface: cssValue("--surface"),
    font: `11px ${cssValue("--font")}`,
  };
}

/** Sets a canvas to a size in CSS pixels, sharp at any ratio, and clears it. */
export function prepared(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const ratio = devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide) canvas.width = wide;
  if (canvas.height !== high) canvas.height = high;
  const context = canvas.getContext("2d")!;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** Returns round times for the marks of an axis. */
export function ticks({ from, until }: Zoom, most: number): number[] {
  const span = until - from;
  if (!(span > 0) || most < 1) return [];
  let step = 10 ** Math.floor(Math.log10(span / most));
  for (const factor of [1, 2, 5, 10]) {
    if (span / (step * factor) <= most) {
      step *= factor;
      break;
    }
  }
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= until; at += step) found.push(at);
  return found;
}

export function tickLabel(us: number): string {
  return us === 0 ? "0" : duration(Math.round(us * 1_000));
}

interface RowsDrawn {
  tree: Tree;
  rows: Uint32Array;
  from: number;
  until: number;
  zoom: Zoom;
  rowPx: number;
  width: number;
  palette: Palette;
}

/** Draws the bars of some rows. Errors have a cross, skewed ends an arrow, the critical path a line below. */
export function drawBars(canvas: HTMLCanvasElement, drawn: RowsDrawn): void {
  const { tree, rows, from, until, zoom, rowPx, width, palette } = drawn;
  const context = prepared(canvas, width, Math.max(1, (until - from) * rowPx));
  const scale = width / (zoom.until - zoom.from);
  context.fillStyle = palette.line;
  for (const at of ticks(zoom, Math.max(1, Math.floor(width / 110))))
    context.fillRect(Math.round((at - zoom.from) * scale), 0, 1, (until - from) * rowPx);
  for (let place = from; place < until; place++) {
    const row = rows[place]!;
    const y = (place - from) * rowPx;
    const start = (tree.start[row]! - zoom.from) * scale;
    const end = start + tree.duration[row]! * scale;
    if (end < 0 || start > width) {
      drawOutside(context, end < 0, y, rowPx, width, palette);
      continue;
    }
    const left = Math.max(0, start);
    const wide = Math.max(2, Math.min(width, end) - left);
    const flags = tree.flags[row]!;
    context.fillStyle = palette.services[tree.service[row]!] ?? palette.muted;
    context.fillRect(left, y + 6, wide, rowPx - 12);
    if (flags & CRITICAL) {
      context.fillStyle = palette.text;
      context.fillRect(left, y + rowPx - 5, wide, 2);
    }
    if (flags & EARLY) drawArrow(context, left, y + rowPx / 2, -1, palette);
    if (flags & LATE) drawArrow(context, left + wide, y + rowPx / 2, 1, palette);
    if (flags & ERROR) drawCross(context, Math.min(width - 7, left + wide + 7), y + rowPx / 2, palette);
  }
}

function drawOutside(
  context: CanvasRenderingContext2D,
  isBefore: boolean,
  y: number,
  rowPx: number,
  width: number,
  palette: Palette,
): void {
  context.fillStyle = palette.muted;
  context.font = palette.font;
  context.textBaseline = "middle";
  context.textAlign = isBefore ? "left" : "right";
  context.fillText(isBefore ? "‹" : "›", isBefore ? 2 : width - 2, y + rowPx / 2);
}

function drawArrow(context: CanvasRenderingContext2D, x: number, y: number, way: number, palette: Palette): void {
  context.fillStyle = palette.text;
  context.beginPath();
  context.moveTo(x + 5 * way, y);
  context.lineTo(x - 2 * way, y - 5);
  context.lineTo(x - 2 * way, y + 5);
  context.fill();
}

function drawCross(context: CanvasRenderingContext2D, x: number, y: number, palette: Palette): void {
  context.strokeStyle = palette.error;
  context.lineWidth = 2;
  context.beginPath();
  context.moveTo(x - 3.5, y - 3.5);
  context.lineTo(x + 3.5, y + 3.5);
  context.moveTo(x + 3.5, y - 3.5);
  context.lineTo(x - 3.5, y + 3.5);
  context.stroke();
}

const FEW = 1_500;

/** Draws the whole trace in small: bars of a few rows, or how many spans run at each place. */
export function drawWhole(
  canvas: HTMLCanvasElement,
  tree: Tree,
  picture: Picture | null,
  width: number,
  height: number,
  palette: Palette,
): void {
  const context = prepared(canvas, width, height);
  if (tree.rows <= FEW || !picture) {
    const high = Math.max(1, (height - 4) / Math.max(1, tree.rows));
    const scale = width / tree.length;
    for (let row = 0; row < tree.rows; row++) {
      const isError = (tree.flags[row]! & ERROR) !== 0;
      context.fillStyle = isError ? palette.error : (palette.services[tree.service[row]!] ?? palette.muted);
      const y = 2 + ((height - 4) * row) / tree.rows;
      context.fillRect(tree.start[row]! * scale, y, Math.max(1.5, tree.duration[row]! * scale), Math.min(4, high));
    }
    return;
  }
  const small = new OffscreenCanvas(picture.width, picture.height);
  const inner = small.getContext("2d")!;
  const image = inner.createImageData(picture.width, picture.height);
  const [red, green, blue] = rgb(palette.accent);
  for (let at = 0; at < picture.density.length; at++) {
    image.data.set([red, green, blue, picture.density[at]!], at * 4);
  }
  inner.putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(small, 0, 6, width, height - 6);
  const most = picture.errors.reduce((a, b) => Math.max(a, b), 0);
  context.fillStyle = palette.error;
  for (let column = 0; column < picture.width && most > 0; column++) {
    const share = Math.log1p(picture.errors[column]!) / Math.log1p(most);
    if (share > 0)
      context.fillRect((column * width) / picture.width, 6 - 6 * share, width / picture.width + 0.5, 6 * share);
  }
}

function rgb(colour: string): [number, number, number] {
  const value = parseInt(colour.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

interface FlameDrawn {
  tree: Tree;
  zoom: Zoom;
  width: number;
  /** The lanes on the screen. */
  first: number;
  last: number;
  lanePx: number;
  palette: Palette;
  selected: number;
  marked: Uint8Array | null;
}

/** Draws the flame graph; of spans narrower than a pixel one for each pixel. */
export function drawFlame(canvas: HTMLCanvasElement, drawn: FlameDrawn): void {
  const { tree, zoom, width, first, last, lanePx, palette, selected, marked } = drawn;
  const context = prepared(canvas, width, Math.max(1, (last - first) * lanePx));
  const scale = width / (zoom.until - zoom.from);
  const until = new Float64Array(last - first).fill(-1);
  context.font = palette.font;
  context.textBaseline = "middle";
  context.textAlign = "left";
  const { start, duration: lengths, lane, flags, rows } = tree;
  for (let row = 0; row < rows; row++) {
    const own = lane[row]!;
    if (own < first || own >= last) continue;
    const begin = start[row]!;
    if (begin > zoom.until || begin + lengths[row]! < zoom.from) continue;
    const left = Math.max(0, (begin - zoom.from) * scale);
    const right = Math.max(left + 1, Math.min(width, (begin + lengths[row]! - zoom.from) * scale));
    const place = own - first;
    if (right <= until[place]! && row !== selected) continue;
    until[place] = Math.max(until[place]!, Math.ceil(right));
    const y = place * lanePx;
    const wide = right - left;
    context.globalAlpha = marked === null || marked[row] === 1 ? 1 : 0.3;
    context.fillStyle = palette.services[tree.service[row]!] ?? palette.muted;
    context.fillRect(left, y, wide > 3 ? wide - 1 : wide, lanePx - 1);
    if (flags[row]! & ERROR) {
      context.fillStyle = palette.error;
      context.fillRect(left, y + lanePx - 4, wide > 3 ? wide - 1 : wide, 3);
    }
    if (wide > 34) drawLabel(context, tree.names[tree.name[row]!] ?? "", left + 4, y + lanePx / 2, wide - 8, palette);
    context.globalAlpha = 1;
    if (row === selected) {
      context.strokeStyle = palette.text;
      context.lineWidth = 2;
      context.strokeRect(left + 1, y + 1, Math.max(2, wide - 2), lanePx - 3);
    }
  }
}

function drawLabel(
  context: CanvasRenderingContext2D,
  text: string,
  x: number,
  y: number,
  room: number,
  palette: Palette,
): void {
  // An average letter has about six pixels: exact enough to cut, and no text is measured.
  const letters = Math.floor(room / 6);
  if (letters < 3) return;
  context.fillStyle = palette.surface;
  context.fillText(text.length > letters ? `${text.slice(0, letters - 1)}…` : text, x, y);
}
