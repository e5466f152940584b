import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
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
  onOpen?: (row: number) => void;
  /** The height of the grid, as CSS writes it. */
  height?: string;
  /** The number of the first row, shown at its left; null shows none. */
  firstNumber?: number | null;
}

const ROW_PX = 28;
const WIDTH_PX = 160;

/** Rows of any number in a frame that scrolls: arrows, Page up and down, Home and End move, Ctrl+C copies a cell. */
export function Grid({ label, columns, rows, cell, sort, onSort, onOpen, height = "60vh", firstNumber = 1 }: Props) {
  const [at, setAt] = useState({ row: 0, column: 0 });
  const frame = useRef<HTMLDivElement | null>(null);
  const view = useVirtual(rows, ROW_PX, ROW_PX);
  const numbered = firstNumber !== null;
  const widths = columns.map((column) => column.width ?? WIDTH_PX);
  const template = `${numbered ? "64px " : ""}${widths.map((width) => `${width}px`).join(" ")}`;
  const inner = widths.reduce((sum, width) => sum + width, numbered ? 64 : 0);
  const page = Math.max(1, view.until - view.from - 2);

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
      setAt({ row, column: Math.max(0, Math.min(columns.length - 1, next[1])) });
      view.show(row);
    } else if (event.key === "Enter" && onOpen && rows > 0) {
      onOpen(at.row);
    } else if (event.key === "c" && (event.ctrlKey || event.metaKey) && !getSelection()?.toString()) {
      const shown = frame.current?.querySelector(".grid-cell.at")?.textContent;
      if (shown) void navigator.clipboard?.writeText(shown);
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
      onScroll={view.onScroll}
      onKeyDown={onKeyDown}
    >
      <div
        class="grid-head"
        role="row"
        aria-rowindex={1}
        style={{ gridTemplateColumns: template, width: `${inner}px` }}
      >
        {numbered && <div class="grid-number" aria-hidden="true" />}
        {columns.map((column, index) => (
          <div
            key={column.id}
            role="columnheader"
            aria-colindex={index + 1}
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
              class={onOpen ? "grid-row opens" : "grid-row"}
              style={{ gridTemplateColumns: template }}
              onClick={() => onOpen?.(row)}
            >
              {numbered && (
                <div class="grid-number" aria-hidden="true">
                  {firstNumber + row}
                </div>
              )}
              {columns.map((column, index) => {
                const isAt = at.row === row && at.column === index;
                return (
                  <div
                    key={column.id}
                    role="gridcell"
                    aria-colindex={index + 1}
                    id={isAt ? `${label}-${row}-${index}`.replace(/\W/g, "-") : undefined}
                    class={`grid-cell ${column.align ?? ""} ${isAt ? "at" : ""}`}
                    onMouseDown={() => setAt({ row, column: index })}
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
