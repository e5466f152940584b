import { useMemo } from "preact/hooks";
import { Grid, Swatch, type GridColumn } from "../../components";
import { colourOf } from "../../format/colours";
import { count, duration, percent } from "../../format/numbers";
import type { Operations } from "./figures";
import type { Tree } from "./tree";

const columns: GridColumn[] = [
  { id: "service", title: "Service", width: 150, sortable: true },
  { id: "name", title: "Operation", width: 260, sortable: true },
  { id: "count", title: "Spans", width: 90, align: "right", sortable: true },
  { id: "errors", title: "Errors", width: 110, align: "right", sortable: true },
  { id: "total", title: "Total", width: 100, align: "right", sortable: true },
  { id: "self", title: "Self", width: 100, align: "right", sortable: true },
  { id: "share", title: "Self share", width: 90, align: "right" },
  { id: "median", title: "p50", width: 90, align: "right", sortable: true },
  { id: "most", title: "Max", width: 90, align: "right", sortable: true },
];

interface Props {
  tree: Tree;
  operations: Operations;
  sort: string;
  onSort: (sort: string) => void;
  onChoose: (service: string, operation: string) => void;
}

/** The spans by operation; a click shows only the spans of one. */
export function OperationsTable({ tree, operations, sort, onSort, onChoose }: Props) {
  const order = useMemo(() => {
    const rows = Uint32Array.from(operations.count, (_count, at) => at);
    const [by, sign] = sort.startsWith("-") ? [sort.slice(1), -1] : [sort, 1];
    const texts = { service: tree.services, name: tree.names }[by];
    if (texts) {
      const codes = operations[by as "service" | "name"];
      return rows.sort((a, b) => sign * texts[codes[a]!]!.localeCompare(texts[codes[b]!]!));
    }
    const values = operations[by as keyof Operations] ?? operations.self;
    return rows.sort((a, b) => sign * (values[a]! - values[b]!));
  }, [operations, tree, sort]);
  const whole = useMemo(() => operations.self.reduce((sum, each) => sum + each, 0), [operations]);
  const cell = (row: number, column: number) => {
    const at = order[row]!;
    const service = tree.services[operations.service[at]!] ?? "";
    const us = (value: number) => duration(Math.round(value * 1_000));
    switch (columns[column]!.id) {
      case "service":
        return (
          <>
            <Swatch index={colourOf(service)} /> {service}
          </>
        );
      case "name":
        return tree.names[operations.name[at]!];
      case "count":
        return count(operations.count[at]!);
      case "errors":
        return operations.errors[at] ? (
          <span class="mark error">
            <span aria-hidden="true">✕</span> {count(operations.errors[at]!)}
          </span>
        ) : (
          "–"
        );
      case "total":
        return us(operations.total[at]!);
      case "self":
        return us(operations.self[at]!);
      case "share":
        return percent(whole ? operations.self[at]! / whole : 0);
      case "median":
        return us(operations.median[at]!);
      default:
        return us(operations.most[at]!);
    }
  };
  return (
    <div class="operations">
      <p class="hint">Enter or a click shows the spans of an operation, with their ancestors.</p>
      <Grid
        label="Spans by operation"
        columns={columns}
        rows={order.length}
        cell={cell}
        sort={sort}
        onSort={onSort}
        height="calc(100dvh - 330px)"
        onOpen={(row) =>
          onChoose(
            tree.services[operations.service[order[row]!]!] ?? "",
            tree.names[operations.name[order[row]!]!] ?? "",
          )
        }
      />
    </div>
  );
}
