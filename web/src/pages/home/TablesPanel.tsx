import { SPANS, BUILD_EVENTS } from "../../api/changes";
import { listUpkeep, type TableUpkeep } from "../../api/upkeep";
import { useAnswer, type Answered } from "../../api/useAnswer";
import { to } from "../../app/router";
import { Ago, Badge, Bytes, Count, EmptyState, Panel, Shown, Table, type Column } from "../../components";
import { counted } from "../../format/numbers";

const SYSTEM = "crannog.system.";
const MOST = 15;
const EVERY_MS = 60_000;

async function ask(signal: AbortSignal): Promise<TableUpkeep[]> {
  return (await listUpkeep({}, signal)).filter((table) => !table.name.startsWith(SYSTEM));
}

export function useUpkeep(): Answered<TableUpkeep[]> {
  return useAnswer(ask, [], { everyMs: EVERY_MS });
}

const columns: Column<TableUpkeep>[] = [
  {
    id: "name",
    title: "Table",
    cell: (table) => (
      <>
        <a href={to("tables", table.name)}>{table.name}</a> {table.error && <Badge tone="error">{table.error}</Badge>}
      </>
    ),
  },
  { id: "rows", title: "Rows", align: "right", cell: (table) => <Count value={table.rows} /> },
  {
    id: "size",
    title: "Size",
    align: "right",
    wide: true,
    cell: (table) => <Bytes value={table.error ? null : table.base_bytes + table.staged_bytes} />,
  },
  { id: "changed", title: "Changed", align: "right", cell: (table) => <Ago at={table.changed_at} /> },
];

/** The tables that changed last. */
export function TablesPanel({ upkeep }: { upkeep: Answered<TableUpkeep[]> }) {
  return (
    <Panel title="Tables, the last changed first" flush actions={<a href={to("tables")}>All tables</a>}>
      <Shown of={upkeep} empty={(found) => !found.some(isOwn) && <NoTables />}>
        {(found) => {
          const latest = found.toSorted((left, right) => Date.parse(right.changed_at) - Date.parse(left.changed_at));
          return (
            <>
              <Table label="Tables" columns={columns} rows={latest.slice(0, MOST)} rowKey={(table) => table.name} />
              {found.length > MOST && (
                <p class="more">
                  <a href={to("tables")}>{counted(found.length - MOST, "more table")}</a>
                </p>
              )}
            </>
          );
        }}
      </Shown>
    </Panel>
  );
}

function isOwn(table: TableUpkeep): boolean {
  return Number(table.rows) > 0 || (table.name !== SPANS && table.name !== BUILD_EVENTS);
}

function NoTables() {
  return (
    <EmptyState title="There are no tables yet">
      <p>
        <a href={to("load")}>Load a file</a>, or do it from a shell:
      </p>
      <pre>{`crannog load orders.csv shop.sales.orders --key order_id`}</pre>
    </EmptyState>
  );
}
