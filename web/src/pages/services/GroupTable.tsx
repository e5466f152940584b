import { to } from "../../app/router";
import { Badge, Count, Duration, Sparkline, Swatch, Table, type Column } from "../../components";
import { count, percent, rate } from "../../format/numbers";
import { bothOf, writtenKey, writtenText } from "../traces/filter";
import type { Figures, FiguresState, Group } from "./figures";

const SORTS: Record<string, (group: Group) => number | string> = {
  name: (group) => group.name,
  rate: (group) => group.rate,
  errors: (group) => group.errorRate,
  p50: (group) => group.p50,
  p95: (group) => group.p95,
  p99: (group) => group.p99,
};

function sorted(groups: readonly Group[], sort: string): Group[] {
  const value = SORTS[sort.replace(/^-/, "")] ?? SORTS.rate!;
  const way = sort.startsWith("-") ? -1 : 1;
  return groups.toSorted((left, right) => {
    const [a, b] = [value(left), value(right)];
    return way * (typeof a === "string" ? a.localeCompare(String(b)) : a - Number(b));
  });
}

/** A link to the traces of a group. */
function tracesOf(group: Group, state: FiguresState, errors: boolean): string {
  const { by, service, q, last, start, end } = state;
  let [where, own, operation] = [q, service, ""];
  if (by === "service" && group.value !== null) own = group.value;
  else if (by === "operation" && group.value !== null) operation = group.value;
  else if (by && group.value === null) where = bothOf(q, `not ${writtenKey(by)} exists`);
  // As text: a group does not tell whether its value was a number.
  else if (by) where = bothOf(q, `${writtenKey(by)} is ${writtenText(group.value!)}`);
  if (errors) where = bothOf(where, "error");
  return to("traces", { service: own, operation, q: where, last: start || end ? "" : last, start, end });
}

const MOST = 200;

interface Props {
  figures: Figures;
  state: FiguresState;
  onSort: (sort: string) => void;
}

/** A row for each group: its figures over the whole range, and the way to its traces. */
export function GroupTable({ figures, state, onSort }: Props) {
  const unit = state.of === "traces" ? "traces" : "spans";
  const columns: Column<Group>[] = [
    {
      id: "name",
      title: state.by || "All",
      sortable: true,
      cell: (group) => (
        <>
          {figures.drawn.includes(group) && <Swatch index={group.colour} />}
          <a href={tracesOf(group, state, false)}>{group.name}</a>
        </>
      ),
    },
    {
      id: "rate",
      title: "Rate",
      align: "right",
      sortable: true,
      cell: (group) => (
        <span class="number" title={`${count(group.count)} ${unit}`}>
          {rate(group.rate)}
        </span>
      ),
    },
    {
      id: "count",
      title: unit === "traces" ? "Traces" : "Spans",
      align: "right",
      wide: true,
      cell: (group) => <Count value={group.count} short />,
    },
    {
      id: "errors",
      title: "Errors",
      align: "right",
      sortable: true,
      cell: (group) =>
        group.errors ? (
          <a href={tracesOf(group, state, true)} title={`${count(group.errors)} of ${count(group.count)}`}>
            <Badge tone="error">{percent(group.errorRate)}</Badge>
          </a>
        ) : (
          <span class="nothing">–</span>
        ),
    },
    {
      id: "p50",
      title: "p50",
      align: "right",
      sortable: true,
      wide: true,
      cell: (group) => <Duration ns={group.p50} />,
    },
    { id: "p95", title: "p95", align: "right", sortable: true, cell: (group) => <Duration ns={group.p95} /> },
    {
      id: "p99",
      title: "p99",
      align: "right",
      sortable: true,
      wide: true,
      cell: (group) => <Duration ns={group.p99} />,
    },
    {
      id: "line",
      title: "Rate over time",
      align: "right",
      wide: true,
      cell: (group) => (
        <Sparkline
          values={group.rates.map((rate) => rate ?? 0)}
          label={`Rate of ${group.name} over time`}
          height={20}
        />
      ),
    },
  ];
  const rows = sorted(figures.groups, state.sort);
  return (
    <>
      <Table
        label={`By ${state.by}`}
        columns={columns}
        rows={rows.slice(0, MOST)}
        rowKey={(group) => `${group.value === null}${group.name}`}
        sort={state.sort}
        onSort={onSort}
      />
      {rows.length > MOST && (
        <p class="hint table-note">
          The first {MOST} of {count(rows.length)}; a filter leaves fewer.
        </p>
      )}
    </>
  );
}
