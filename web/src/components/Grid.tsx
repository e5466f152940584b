import type { ComponentChildren } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { copyText } from "./CopyButton";
import { useVirtual } from "./virtual";

export interface GridColumn {
  id: string;
  title: ComponentChildren;
  /** In pixels. */
  width?: number;
  align?: "right";
  sortable?: boolean;
}

interface Props {
  label: string;
  columns: readonly GridColumn[];
  /** How many rows there are; only those on the screen are asked for. */
  rows: number;
  /** What a cell shows: a text, or something made of it. Called for cells on the screen alone. */
  cell: (row: number, column: number) => ComponentChildren;
  sort?: string | undefined;
  onSort?: (sort: string) => void;
  /** Called by Enter and by a click on a row. */
  onOpen?: (row: number, column: number) => void;
  /** Open by two clicks, where one click only chooses a cell. */
  opensBy?: "click" | "double click";
  /** What Ctrl+C copies of a cell; what it shows if left out. */
  copied?: (row: number, column: number) => string;
  /** The height of the grid, as CSS writes it. */
  height?: string;
  /** The number of the first row, shown at its left; null shows none. */
  firstNumber?: number | null;
}

const ROW_PX = 28;
const WIDTH_PX = 160;
const NUMBER_PX = 64;
const LEAST_PX = 48;

/** Which columns are on the screen: the first, the one after the last, and the pixels before the first. */
function columnsIn(ends: readonly number[], left: number, width: number): [number, number, number] {
  let from = 0;
  while (from < ends.length - 1 && ends[from]! <= left) from++;
  let until = from;
  while (until < ends.length && (until === from || ends[until - 1]! < left + width)) until++;
  return [from, until, from ? ends[from - 1]! : 0];
}

/**
 * Rows of any number, and columns of any number, in a frame that scrolls: arrows, Page up and down, Home and End move, Ctrl+C
 * copies a cell. Columns are made wider by dragging the edge of their head.
 */
export function Grid(props: Props) {
  const { label, columns, rows, cell, sort, onSort, onOpen, opensBy = "click", copied } = props;
  const { height = "60vh", firstNumber = 1 } = props;
  const [at, setAt] = useState({ row: 0, column: 0 });
  const frame = useRef<HTMLDivElement | null>(null);
  const view = useVirtual(rows, ROW_PX, ROW_PX);
  const [dragged, setDragged] = useState<Record<string, number>>({});
  const [sideways, setSideways] = useState({ left: 0, width: 1200 });
  const numbered = firstNumber !== null;
  const numberPx = numbered ? NUMBER_PX : 0;
  const ends = useMemo(() => {
    let sum = 0;
    return columns.map((column) => (sum += dragged[column.id] ?? column.width ?? WIDTH_PX));
  }, [columns, dragged]);
  const [fromColumn, untilColumn, before] = columnsIn(ends, sideways.left, sideways.width);
  const made = columns.slice(fromColumn, untilColumn);
  const widthOf = (column: number) => ends[column]! - (column ? ends[column - 1]! : 0);
  const template = [
    ...(numbered ? [`${numberPx}px`] : []),
    `${before}px`,
    ...made.map((_column, index) => `${widthOf(fromColumn + index)}px`),
  ].join(" ");
  const inner = numberPx + (ends[ends.length - 1] ?? 0);
  const page = Math.max(1, view.until - view.from - 2);

  const measure = () => {
    const found = frame.current;
    if (found && (found.scrollLeft !== sideways.left || found.clientWidth !== sideways.width))
      setSideways({ left: found.scrollLeft, width: found.clientWidth });
  };
  useLayoutEffect(measure);
  const showColumn = (column: number) => {
    const found = frame.current;
    if (!found) return;
    const [left, right] = [ends[column]! - widthOf(column), ends[column]!];
    const width = found.clientWidth - numberPx;
    if (left < found.scrollLeft) found.scrollLeft = left;
    else if (right > found.scrollLeft + width) found.scrollLeft = Math.min(left, right - width);
  };
  const drag = (event: PointerEvent, column: GridColumn, place: number) => {
    event.preventDefault();
    event.stopPropagation();
    const [start, width] = [event.clientX, widthOf(place)];
    const handle = event.currentTarget as HTMLElement;
    handle.setPointerCapture(event.pointerId);
    handle.onpointermove = (moved) =>
      setDragged((known) => ({ ...known, [column.id]: Math.max(LEAST_PX, width + moved.clientX - start) }));
    handle.onpointerup = () => (handle.onpointermove = handle.onpointerup = null);
  };

  const onKeyDown = (event: KeyboardEvent) => {
    const moves: Record<string, [number, number]> = {
      ArrowDown: [at.row + 1, at.column],
      ArrowUp: [at.row - 1, at.column],
      ArrowRight: [at.row, at.column + 1],
      ArrowLeft: [at.row, at.column - 1],
      PageDown: [at.row + page, at.column],
      PageUp: [at.row - page, at.column],
      Home: event.ctrlKey || event.metaKey ? [0, at.column] : [at.row, 0],
      End: event.ctrlKey || event.metaKey ? [rows - 1, at.column] : [at.row, columns.length - 1],
    };
    const next = moves[event.key];
    if (next) {
      event.preventDefault();
      const row = Math.max(0, Math.min(rows - 1, next[0]));
      const column = Math.max(0, Math.min(columns.length - 1, next[1]));
      setAt({ row, column });
      view.show(row);
      showColumn(column);
    } else if (event.key === "Enter" && onOpen && rows > 0 && event.target === frame.current) {
      event.preventDefault();
      onOpen(at.row, at.column);
    } else if (event.key === "c" && (event.ctrlKey || event.metaKey) && !getSelection()?.toString()) {
      const shown = copied?.(at.row, at.column) ?? frame.current?.querySelector(".grid-cell.at")?.textContent;
      if (shown) void copyText(shown, "cell");
    }
  };

  const shown = [];
  for (let row = view.from; row < view.until; row++) shown.push(row);
  return (
    <div
      ref={(element) => {
        frame.current = element;
        view.frame(element);
      }}
      class="grid"
      role="grid"
      aria-label={label}
      aria-rowcount={rows + 1}
      aria-colcount={columns.length}
      aria-activedescendant={rows ? `${label}-${at.row}-${at.column}`.replace(/\W/g, "-") : undefined}
      tabIndex={0}
      style={{ maxHeight: height }}
      onScroll={() => {
        view.onScroll();
        measure();
      }}
      onKeyDown={onKeyDown}
    >
      <div
        class="grid-head"
        role="row"
        aria-rowindex={1}
        style={{ gridTemplateColumns: template, width: `${inner}px` }}
      >
        {numbered && <div class="grid-number" aria-hidden="true" />}
        <div class="grid-gap" aria-hidden="true" />
        {made.map((column, index) => (
          <div
            key={column.id}
            role="columnheader"
            aria-colindex={fromColumn + index + 1}
            class={column.align}
            aria-sort={sort === column.id ? "ascending" : sort === `-${column.id}` ? "descending" : undefined}
          >
            {column.sortable && onSort ? (
              <button
                type="button"
                class="sort"
                onClick={() => onSort(sort === column.id ? `-${column.id}` : column.id)}
              >
                {column.title}
                <span aria-hidden="true">{sort === column.id ? " ↑" : sort === `-${column.id}` ? " ↓" : ""}</span>
              </button>
            ) : (
              column.title
            )}
            <span
              class="grid-edge"
              aria-hidden="true"
              onPointerDown={(event) => drag(event, column, fromColumn + index)}
            />
          </div>
        ))}
      </div>
      <div class="grid-rows" role="rowgroup" style={{ height: `${view.height}px`, width: `${inner}px` }}>
        <div role="presentation" style={{ transform: `translateY(${view.top}px)` }}>
          {shown.map((row) => (
            <div
              key={row}
              role="row"
              aria-rowindex={row + 2}
              class={onOpen && opensBy === "click" ? "grid-row opens" : "grid-row"}
              style={{ gridTemplateColumns: template }}
            >
              {numbered && (
                <div class="grid-number" aria-hidden="true">
                  {firstNumber + row}
                </div>
              )}
              <div class="grid-gap" aria-hidden="true" />
              {made.map((column, offset) => {
                const index = fromColumn + offset;
                const isAt = at.row === row && at.column === index;
                return (
                  <div
                    key={column.id}
                    role="gridcell"
                    aria-colindex={index + 1}
                    id={isAt ? `${label}-${row}-${index}`.replace(/\W/g, "-") : undefined}
                    class={`grid-cell ${column.align ?? ""} ${isAt ? "at" : ""}`}
                    onMouseDown={() => setAt({ row, column: index })}
                    onClick={opensBy === "click" ? () => onOpen?.(row, index) : undefined}
                    onDblClick={opensBy === "double click" ? () => onOpen?.(row, index) : undefined}
                  >
                    {cell(row, index)}
                  </div>
                );
              })}
            </div>
          ))}
        </div>
      </div>
    </div>
  );
}
