import { describeTable, listTables, type TableDescription } from "../../api/tables";
import { useAnswer, type Answered } from "../../api/useAnswer";
import { to } from "../../app/router";
import { Badge, Bytes, Count, EmptyState, Panel, Shown, Table, type Column } from "../../components";

interface Tables {
  names: string[];
  described: TableDescription[];
}

const MOST = 12;
const EVERY_MS = 30_000;

async function ask(signal: AbortSignal): Promise<Tables> {
  const names = await listTables(false, signal);
  const described = await Promise.all(names.slice(0, MOST).map((name) => describeTable(name, signal)));
  return { names, described };
}

export function useTables(): Answered<Tables> {
  return useAnswer(ask, [], { everyMs: EVERY_MS });
}

const columns: Column<TableDescription>[] = [
  { id: "name", title: "Table", cell: (table) => <a href={to("tables", table.name)}>{table.name}</a> },
  { id: "rows", title: "Rows", align: "right", cell: (table) => <Count value={table.rows} /> },
  { id: "size", title: "Size", align: "right", cell: (table) => <Bytes value={table.bytes + table.staged_bytes} /> },
  {
    id: "staged",
    title: "Not folded",
    align: "right",
    wide: true,
    cell: (table) => (table.staged_rows ? <Count value={table.staged_rows} short /> : <Badge tone="ok">none</Badge>),
  },
];

export function TablesPanel({ tables }: { tables: Answered<Tables> }) {
  return (
    <Panel title="Tables" flush actions={<a href={to("tables")}>All tables</a>}>
      <Shown of={tables} empty={(found) => found.names.length === 0 && <NoTables />}>
        {(found) => <Table label="Tables" columns={columns} rows={found.described} rowKey={(table) => table.name} />}
      </Shown>
    </Panel>
  );
}

function NoTables() {
  return (
    <EmptyState title="There are no tables yet">
      <p>
        <a href={to("load")}>Load a file</a>, or write rows:
      </p>
      <pre>{`crannog load orders.csv shop.sales.orders --key order_id`}</pre>
    </EmptyState>
  );
}
