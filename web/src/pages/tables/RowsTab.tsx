/** The rows of a table: in pages by key, or by a column; filtered; of now or of an earlier version. */

import { useState } from "preact/hooks";
import { runSql } from "../../api/sql";
import { pageRows, type RowPage, type TableDescription } from "../../api/tables";
import { useAnswer } from "../../api/useAnswer";
import { flag, list, text, useAddress, whole } from "../../app/address";
import { to } from "../../app/router";
import { Badge, Button, Checkbox, EmptyState, Panel, Select, Shown, TextField } from "../../components";
import { ArrowGrid } from "../../components/ArrowGrid";
import type { ResultColumn } from "../../format/cells";
import { counted } from "../../format/numbers";
import { filterText, operatorsFor, readFilter, typedValue, writeFilter, type Operator } from "./filters";
import { quoted, quotedName } from "../../format/sql";

const SHAPE = {
  order: text(),
  where: list(),
  after: text(),
  before: text(),
  limit: whole(200),
  raw: flag(),
  version: whole(-1),
};
const LIMITS = ["50", "200", "1000", "10000"] as const;

export function RowsTab({ table, columns }: { table: TableDescription; columns: readonly ResultColumn[] }) {
  const [state, set] = useAddress(SHAPE);
  const old = state.version >= 0;
  const page = useAnswer(
    (signal) =>
      old
        ? versionRows(table, state.version, state.order, state.limit, signal)
        : pageRows(
            table.name,
            {
              limit: state.limit,
              order: state.order || undefined,
              where: state.where,
              after: state.after || undefined,
              before: state.before || undefined,
              raw: state.raw || undefined,
            },
            signal,
          ),
    [table.name, state.order, state.where, state.after, state.before, state.limit, state.raw, state.version],
  );
  const start = { after: "", before: "" };
  return (
    <Panel flush>
      <div class="rows-bar">
        {old ? (
          <p>
            <Badge tone="warn">version {state.version}</Badge> The first {state.limit} rows as they were then.{" "}
            <Button kind="quiet" onClick={() => set({ version: -1 }, { push: true })}>
              Back to now
            </Button>
          </p>
        ) : (
          <FilterForm
            columns={columns}
            filters={state.where}
            change={(where) => set({ where, ...start }, { push: true })}
          />
        )}
      </div>
      <Shown
        of={page}
        what="Reading rows"
        empty={(found) =>
          found.rows.numRows === 0 && (
            <NoRows filtered={state.where.length > 0} table={table.name} clear={() => set({ where: [], ...start })} />
          )
        }
      >
        {(found) => (
          <ArrowGrid
            label={`Rows of ${table.name}`}
            table={found.rows}
            keys={table.key}
            sort={state.order || undefined}
            onSort={(order) => set({ order, ...start }, { push: true })}
            height="max(320px, calc(100vh - 440px))"
          />
        )}
      </Shown>
      <div class="pager">
        <span class="hint">
          {page.data &&
            `${counted(page.data.rows.numRows, "row")}, ${orderText(table, state.order)}. Two clicks or Enter open a cell.`}
        </span>
        {!old && table.key.length > 0 && (
          <Checkbox
            label="With deleted"
            checked={state.raw}
            onChange={(raw) => set({ raw, ...start }, { push: true })}
          />
        )}
        <Select
          label="Rows of a page"
          hideLabel
          value={String(state.limit) as (typeof LIMITS)[number]}
          onChange={(limit) => set({ limit: Number(limit), ...start }, { push: true })}
          options={LIMITS.map((each) => [each, `${each} rows`] as const)}
        />
        <Button disabled={!state.after && !state.before} onClick={() => set(start, { push: true })}>
          First
        </Button>
        <Button
          disabled={!page.data?.previous}
          onClick={() => set({ after: "", before: page.data?.previous ?? "" }, { push: true })}
        >
          ← Before
        </Button>
        <Button
          disabled={!page.data?.next}
          onClick={() => set({ after: page.data?.next ?? "", before: "" }, { push: true })}
        >
          Next →
        </Button>
      </div>
    </Panel>
  );
}

function orderText(table: TableDescription, order: string): string {
  if (order) return `by ${order.replace(/^-/, "")}${order.startsWith("-") ? ", descending" : ""}`;
  return table.key.length ? `by the key (${table.key.join(", ")})` : "in the order of writing";
}

/** Rows of an earlier version: only SQL reads those, so there are no cursors. */
async function versionRows(
  table: TableDescription,
  version: number,
  order: string,
  limit: number,
  signal: AbortSignal,
): Promise<RowPage> {
  const by = order ? [order] : table.key;
  const sorting = by.map((each) => `${quoted(each.replace(/^-/, ""))}${each.startsWith("-") ? " DESC" : ""}`);
  const sql =
    `SELECT * FROM ${quotedName(table.name)} VERSION AS OF ${version}` +
    (sorting.length ? ` ORDER BY ${sorting.join(", ")}` : "") +
    ` LIMIT ${limit}`;
  const result = await runSql({ sql, maxRows: limit }, crypto.randomUUID(), () => {}, signal);
  return { rows: result.table, next: null, previous: null };
}

interface FilterProps {
  columns: readonly ResultColumn[];
  filters: readonly string[];
  change: (filters: string[]) => void;
}

function FilterForm({ columns, filters, change }: FilterProps) {
  const [column, setColumn] = useState("");
  const [operator, setOperator] = useState<Operator>("=");
  const [value, setValue] = useState("");
  const chosen = columns.find((each) => each.name === column) ?? columns[0];
  const operators = operatorsFor(chosen?.kind ?? "text");
  const used = operators.some(([each]) => each === operator) ? operator : operators[0]![0];
  const hasValue = !used.startsWith("is_");
  const add = (event: Event) => {
    event.preventDefault();
    if (!chosen) return;
    const filter = { column: chosen.name, operator: used };
    const written = writeFilter(hasValue ? { ...filter, value: typedValue(value, chosen.kind, used) } : filter);
    change([...filters, written]);
    setValue("");
  };
  return (
    <>
      <form class="filter-form" onSubmit={add}>
        <Select
          label="Column"
          hideLabel
          value={chosen?.name ?? ""}
          onChange={setColumn}
          options={columns.map((each) => each.name)}
        />
        <Select label="Operator" hideLabel value={used} onChange={setOperator} options={operators} />
        {hasValue && (
          <TextField
            label="Value"
            hideLabel
            value={value}
            onInput={setValue}
            placeholder={hint(chosen, used)}
            spellcheck={false}
          />
        )}
        <Button type="submit">Filter</Button>
      </form>
      {filters.length > 0 && (
        <ul class="chips" aria-label="Filters">
          {filters.map((each, place) => {
            const filter = readFilter(each);
            const shown = filter ? filterText(filter) : each;
            return (
              <li key={place} class="chip">
                {shown}
                <button
                  type="button"
                  aria-label={`Remove the filter ${shown}`}
                  onClick={() => change(filters.filter((_filter, other) => other !== place))}
                >
                  ×
                </button>
              </li>
            );
          })}
        </ul>
      )}
    </>
  );
}

function hint(column: ResultColumn | undefined, operator: Operator): string {
  if (operator === "in") return "a, b, c";
  if (column?.kind === "time") return "2026-01-31T10:00:00Z";
  if (column?.kind === "date") return "2026-01-31";
  if (column?.kind === "boolean") return "true";
  if (column?.kind === "binary") return "base64";
  return column?.kind === "number" ? "42" : "text";
}

function NoRows({ filtered, table, clear }: { filtered: boolean; table: string; clear: () => void }) {
  return filtered ? (
    <EmptyState title="No row matches the filters">
      <Button onClick={clear}>Remove the filters</Button>
    </EmptyState>
  ) : (
    <EmptyState title="There are no rows here">
      <p>
        <a href={to("load", { table })}>Load a file</a> into it, or go to the first page.
      </p>
    </EmptyState>
  );
}
