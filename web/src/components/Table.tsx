import type { ComponentChildren } from "preact";

export interface Column<T> {
  /** Names the column, also in the address if it can be sorted by. */
  id: string;
  title: string;
  cell: (row: T) => ComponentChildren;
  /** Numbers are set to the right. */
  align?: "right";
  /** Left out where the screen is narrow. */
  wide?: boolean;
  sortable?: boolean;
}

interface Props<T> {
  label: string;
  columns: readonly Column<T>[];
  rows: readonly T[];
  rowKey: (row: T, index: number) => string | number;
  /** The column that the rows are sorted by; with `-` before it in falling order. */
  sort?: string | undefined;
  onSort?: (sort: string) => void;
}

/** A table of up to some thousand rows. For more, use `Grid`. The first column heads its row. */
export function Table<T>({ label, columns, rows, rowKey, sort, onSort }: Props<T>) {
  return (
    <div class="table-frame" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.id} scope="col" class={classOf(column)} aria-sort={direction(column, sort)}>
                {column.sortable && onSort ? (
                  <button
                    type="button"
                    class="sort"
                    onClick={() => onSort(sort === `-${column.id}` ? column.id : `-${column.id}`)}
                  >
                    {column.title}
                    <span aria-hidden="true">{sort === column.id ? " ↑" : sort === `-${column.id}` ? " ↓" : ""}</span>
                  </button>
                ) : (
                  column.title
                )}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={rowKey(row, index)}>
              {columns.map((column, place) =>
                place === 0 ? (
                  <th key={column.id} scope="row" class={classOf(column)}>
                    {column.cell(row)}
                  </th>
                ) : (
                  <td key={column.id} class={classOf(column)}>
                    {column.cell(row)}
                  </td>
                ),
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function classOf<T>(column: Column<T>): string | undefined {
  return [column.align === "right" ? "right" : "", column.wide ? "wide" : ""].filter(Boolean).join(" ") || undefined;
}

function direction<T>(column: Column<T>, sort: string | undefined): "ascending" | "descending" | undefined {
  return sort === column.id ? "ascending" : sort === `-${column.id}` ? "descending" : undefined;
}
