/** A chart of a result: what fits is chosen at first, all of it can be changed, and is in the address. */

import type { Table } from "@uwdata/flechette";
import { useEffect, useMemo, useRef } from "preact/hooks";
import type uPlot from "uplot";
import { choice, list, text, useAddress } from "../../app/address";
import { isDark, zone } from "../../app/preferences";
import { Badge, Button, EmptyState, Select } from "../../components";
import { cellNumber, cellText, columnsOf, type ResultColumn } from "../../format/cells";
import { count } from "../../format/numbers";
import type { PlotData } from "./plot";

const KINDS = ["line", "bar", "scatter"] as const;
type ChartKind = (typeof KINDS)[number];
const MOST_POINTS = 100_000;
const MOST_NAMES = 2_000;
const MOST_SERIES = 10;

interface Choice {
  kind: ChartKind;
  x: string;
  y: string[];
  by: string;
}

/** What is worth drawing: over time if there is one, else bars over names, else points over the first number. */
function suggested(columns: readonly ResultColumn[]): Choice | null {
  const numbers = columns.filter((column) => column.kind === "number");
  const time = columns.find((column) => column.kind === "time" || column.kind === "date");
  const name = columns.find((column) => column.kind === "text" || column.kind === "boolean");
  if (time && numbers[0]) return { kind: "line", x: time.name, y: [numbers[0].name], by: name?.name ?? "" };
  if (name && numbers[0]) return { kind: "bar", x: name.name, y: [numbers[0].name], by: "" };
  if (numbers[0] && numbers[1]) return { kind: "scatter", x: numbers[0].name, y: [numbers[1].name], by: "" };
  return null;
}

export function ResultChart({ table }: { table: Table }) {
  const [state, set] = useAddress({ chart: choice(["", ...KINDS]), x: text(), y: list(), by: text("*") });
  const columns = useMemo(() => columnsOf(table), [table]);
  const first = useMemo(() => suggested(columns), [columns]);
  const has = (name: string) => columns.some((column) => column.name === name);
  const numbers = columns.filter((column) => column.kind === "number");
  const chosen: Choice | null = first && {
    kind: state.chart || first.kind,
    x: has(state.x) ? state.x : first.x,
    y: state.y.some(has) ? state.y.filter(has) : first.y,
    by: state.by === "*" ? first.by : has(state.by) ? state.by : "",
  };
  const signature = JSON.stringify(chosen);
  const utc = zone.value === "utc";
  const made = useMemo(() => (chosen ? dataOf(table, columns, chosen, utc) : null), [table, signature, utc]);
  if (!chosen || !made) {
    return (
      <EmptyState title="There is nothing to draw">
        <p>A chart needs a column of numbers, and another one to draw it over: a time, a name or a number.</p>
      </EmptyState>
    );
  }
  const over = columns.filter((column) => column.kind !== "nested" && column.kind !== "binary");
  const further = numbers.filter((column) => !chosen.y.includes(column.name));
  return (
    <div class="result-chart">
      <div class="chart-form">
        <div class="kinds" role="group" aria-label="Kind of chart">
          {KINDS.map((kind) => (
            <Button
              key={kind}
              aria-pressed={kind === chosen.kind}
              kind={kind === chosen.kind ? "primary" : "plain"}
              onClick={() => set({ chart: kind })}
            >
              {kind === "line" ? "Line" : kind === "bar" ? "Bars" : "Points"}
            </Button>
          ))}
        </div>
        <Select label="Over" value={chosen.x} onChange={(x) => set({ x })} options={over.map((each) => each.name)} />
        <Select
          label="Value"
          value={chosen.y[0]!}
          onChange={(y) => set({ y: [y, ...chosen.y.slice(1)] })}
          options={numbers.map((each) => each.name)}
        />
        {further.length > 0 && !chosen.by && (
          <Select
            label="And"
            value={chosen.y[1] ?? ""}
            onChange={(y) => set({ y: y ? [chosen.y[0]!, y] : [chosen.y[0]!] })}
            options={[["", "nothing else"], ...numbers.map((each) => [each.name, each.name] as const)]}
          />
        )}
        <Select
          label="One for each"
          value={chosen.by}
          onChange={(by) => set({ by })}
          options={[
            ["", "–"],
            ...columns
              .filter((each) => each.kind === "text" || each.kind === "boolean")
              .map((each) => [each.name, each.name] as const),
          ]}
        />
        {made.left > 0 && <Badge tone="warn">{count(made.left)} rows are not drawn</Badge>}
        {made.others > 0 && <Badge tone="warn">{count(made.others)} further series are not drawn</Badge>}
      </div>
      <Drawing data={made.data} label={`${chosen.y.join(", ")} over ${chosen.x}`} />
    </div>
  );
}

interface Made {
  data: PlotData;
  left: number;
  others: number;
}

function dataOf(table: Table, columns: readonly ResultColumn[], { kind, x, y, by }: Choice, utc: boolean): Made {
  const place = (name: string) => columns.findIndex((column) => column.name === name);
  const over = columns[place(x)]!;
  const named = over.kind === "text" || over.kind === "boolean" || (kind === "bar" && over.kind !== "number");
  const rows = Math.min(table.numRows, MOST_POINTS);
  const xs = table.getChildAt(place(x));
  const names: string[] = [];
  const known = new Map<string, number>();
  const groups = new Map<string, Map<number, number>>();
  const used = new Set<number>();
  let [left, others] = [table.numRows - rows, 0];
  for (let row = 0; row < rows; row++) {
    let at: number | null;
    if (named) {
      const name = cellText(xs, row) ?? "null";
      const found = known.get(name);
      if (found === undefined && names.length >= MOST_NAMES) {
        left++;
        continue;
      }
      at = found ?? names.length;
      if (found === undefined) {
        known.set(name, at);
        names.push(name);
      }
    } else at = cellNumber(xs, row);
    if (at === null) {
      left++;
      continue;
    }
    for (const value of y) {
      const label = by ? (cellText(table.getChildAt(place(by)), row) ?? "null") : value;
      let group = groups.get(label);
      if (!group) {
        if (groups.size >= MOST_SERIES) {
          others++;
          continue;
        }
        groups.set(label, (group = new Map()));
      }
      const number = cellNumber(table.getChildAt(place(value)), row);
      if (number === null) continue;
      group.set(at, number);
      used.add(at);
    }
  }
  const sorted = [...used].sort((one, other) => one - other);
  const series = [...groups].map(([label, values]) => ({ label, values: sorted.map((at) => values.get(at) ?? null) }));
  const isTime = !named && (over.kind === "time" || over.kind === "date");
  return { data: { kind, x: sorted, names: named ? names : null, isTime, utc, series }, left, others };
}

function Drawing({ data, label }: { data: PlotData; label: string }) {
  const box = useRef<HTMLDivElement>(null);
  const dark = isDark.value;
  useEffect(() => {
    let [chart, gone]: [uPlot | undefined, boolean] = [undefined, false];
    const resize = new ResizeObserver(
      () => box.current && chart?.setSize({ width: box.current.clientWidth, height: chart.height }),
    );
    void import("./plot").then(({ plot }) => {
      if (gone || !box.current) return;
      chart = plot(box.current, data);
      resize.observe(box.current);
    });
    return () => {
      gone = true;
      resize.disconnect();
      chart?.destroy();
    };
  }, [data, dark]);
  return (
    <figure class="chart" aria-label={label}>
      <div ref={box} aria-hidden="true" style={{ minHeight: "380px" }} />
      <figcaption class="visually-hidden">
        {label}: {data.series.length} series of {data.x.length} points; the tab Rows has all values.
      </figcaption>
    </figure>
  );
}
