/** The catalogue: catalogs, their schemas and the tables in them, as a tree with what matters of each table. */

import { useMemo } from "preact/hooks";
import { mayAnywhere } from "../../api/session";
import { describeTable, listTables } from "../../api/tables";
import { listUpkeep, type TableUpkeep } from "../../api/upkeep";
import { useAnswer } from "../../api/useAnswer";
import { choice, flag, list, text, useAddress } from "../../app/address";
import { to } from "../../app/router";
import { Ago, Bytes, Checkbox, Count, EmptyState, PageHead, Panel, Select, Shown, TextField } from "../../components";
import { counted } from "../../format/numbers";
import "./tables.css";

const ORDERS = ["name", "rows", "size", "waiting"] as const;
// Each is a request: they are asked for only when a person searches.
const MOST_DESCRIBED = 300;

export interface Entry {
  name: string;
  amounts: TableUpkeep | undefined;
}

interface Group {
  name: string;
  entries: Entry[];
}

async function ask(system: boolean, signal: AbortSignal): Promise<Entry[]> {
  const [names, upkeep] = await Promise.all([listTables(system, signal), listUpkeep({}, signal)]);
  const amounts = new Map(upkeep.filter((table) => !table.error).map((table) => [table.name, table]));
  return names.map((name) => ({ name, amounts: amounts.get(name) }));
}

type Columns = ReadonlyMap<string, readonly string[]>;

async function askColumns(names: readonly string[], signal: AbortSignal): Promise<Columns> {
  const described = await Promise.allSettled(names.slice(0, MOST_DESCRIBED).map((name) => describeTable(name, signal)));
  return new Map(
    described.flatMap((each) =>
      each.status === "fulfilled"
        ? [[each.value.name, each.value.columns.map((column) => column.name.toLowerCase())] as const]
        : [],
    ),
  );
}

export default function TablesPage() {
  const [state, set] = useAddress({ q: text(), system: flag(), order: choice(ORDERS), closed: list() });
  const tables = useAnswer((signal) => ask(state.system, signal), [state.system], { everyMs: 30_000 });
  const columns = useAnswer(
    (signal) => askColumns(tables.data?.map((table) => table.name) ?? [], signal),
    [tables.data?.length],
    { when: state.q !== "" && tables.data !== undefined },
  );
  const toggle = (name: string) =>
    set({
      closed: state.closed.includes(name) ? state.closed.filter((each) => each !== name) : [...state.closed, name],
    });
  return (
    <>
      <PageHead title="Tables" actions={mayAnywhere("write") && <a href={to("load")}>Load a file</a>} />
      <Panel>
        <form class="form-row catalogue-form" onSubmit={(event) => event.preventDefault()}>
          <TextField
            label="Find a table or column"
            type="search"
            placeholder="orders, customer_id …"
            value={state.q}
            onInput={(q) => set({ q })}
          />
          <Select
            label="Order"
            value={state.order}
            onChange={(order) => set({ order })}
            options={[
              ["name", "by name"],
              ["rows", "most rows"],
              ["size", "largest"],
              ["waiting", "most rows to fold"],
            ]}
          />
          <Checkbox label="Tables of the server" checked={state.system} onChange={(system) => set({ system })} />
        </form>
      </Panel>
      <Panel flush>
        <Shown of={tables} empty={(found) => found.length === 0 && <NoTables />}>
          {(found) => (
            <Catalogue
              entries={found}
              columns={columns.data ?? NO_COLUMNS}
              words={state.q}
              order={state.order}
              closed={state.closed}
              toggle={toggle}
            />
          )}
        </Shown>
      </Panel>
    </>
  );
}

const NO_COLUMNS: Columns = new Map();

/** Whether a table, or one of its columns, has all the words. */
function matches(entry: Entry, columns: Columns, words: readonly string[]): boolean {
  const name = entry.name.toLowerCase();
  const own = columns.get(entry.name) ?? [];
  return words.every((word) => name.includes(word) || own.some((column) => column.includes(word)));
}

function valueOf(entry: Entry, order: (typeof ORDERS)[number]): number {
  const found = entry.amounts;
  if (!found) return -1;
  if (order === "rows") return Number(found.rows);
  return order === "size" ? found.base_bytes + found.staged_bytes : Number(found.staged_rows);
}

function grouped(entries: readonly Entry[], columns: Columns, words: string, order: (typeof ORDERS)[number]): Group[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const groups = new Map<string, Entry[]>();
  for (const entry of entries) {
    if (!matches(entry, columns, wanted)) continue;
    const schema = entry.name.split(".").slice(0, 2).join(".");
    groups.set(schema, [...(groups.get(schema) ?? []), entry]);
  }
  return [...groups].map(([name, own]) => ({
    name,
    entries: order === "name" ? own : own.toSorted((left, right) => valueOf(right, order) - valueOf(left, order)),
  }));
}

interface CatalogueProps {
  entries: readonly Entry[];
  columns: Columns;
  words: string;
  order: (typeof ORDERS)[number];
  closed: readonly string[];
  toggle: (name: string) => void;
}

function Catalogue({ entries, columns, words, order, closed, toggle }: CatalogueProps) {
  const groups = useMemo(() => grouped(entries, columns, words, order), [entries, columns, words, order]);
  const catalogs = useMemo(() => {
    const found = new Map<string, Group[]>();
    for (const group of groups) {
      const catalog = group.name.split(".")[0]!;
      found.set(catalog, [...(found.get(catalog) ?? []), group]);
    }
    return [...found];
  }, [groups]);
  if (groups.length === 0) {
    return (
      <EmptyState title="No table or column has this name">
        <p>
          <a href={to("tables")}>Show all tables</a>
        </p>
      </EmptyState>
    );
  }
  return (
    <div class="table-frame" tabIndex={0} role="region" aria-label="Catalogue">
      <table class="catalogue" aria-label="Tables">
        <thead>
          <tr>
            <th scope="col">Table</th>
            <th scope="col" class="right">
              Rows
            </th>
            <th scope="col" class="right">
              Size
            </th>
            <th scope="col" class="right wide">
              Files
            </th>
            <th scope="col" class="right wide">
              To fold
            </th>
            <th scope="col" class="right">
              Changed
            </th>
          </tr>
        </thead>
        {catalogs.map(([catalog, schemas]) => (
          <tbody key={catalog}>
            <GroupRow
              name={catalog}
              label={catalog}
              level={1}
              isOpen={!closed.includes(catalog)}
              toggle={toggle}
              entries={schemas.flatMap((schema) => schema.entries)}
            />
            {!closed.includes(catalog) &&
              schemas.flatMap((schema) => [
                <GroupRow
                  key={schema.name}
                  name={schema.name}
                  label={schema.name.split(".")[1] ?? ""}
                  level={2}
                  isOpen={!closed.includes(schema.name)}
                  toggle={toggle}
                  entries={schema.entries}
                />,
                ...(closed.includes(schema.name)
                  ? []
                  : schema.entries.map((entry) => <TableRow key={entry.name} entry={entry} />)),
              ])}
          </tbody>
        ))}
      </table>
    </div>
  );
}

interface GroupRowProps {
  name: string;
  label: string;
  level: number;
  isOpen: boolean;
  toggle: (name: string) => void;
  entries: readonly Entry[];
}

function GroupRow({ name, label, level, isOpen, toggle, entries }: GroupRowProps) {
  const known = entries.flatMap((entry) => (entry.amounts ? [entry.amounts] : []));
  return (
    <tr class={`group level-${level}`}>
      <th scope="rowgroup">
        <button type="button" class="twist-button" aria-expanded={isOpen} onClick={() => toggle(name)}>
          <span aria-hidden="true">{isOpen ? "▾" : "▸"}</span> {label}
          <span class="hint"> {counted(entries.length, "table")}</span>
        </button>
      </th>
      <td class="right">
        <Count value={known.reduce((sum, table) => sum + Number(table.rows), 0)} short />
      </td>
      <td class="right">
        <Bytes value={known.reduce((sum, table) => sum + table.base_bytes + table.staged_bytes, 0)} />
      </td>
      <td class="wide" colSpan={2} />
      <td />
    </tr>
  );
}

function TableRow({ entry }: { entry: Entry }) {
  const found = entry.amounts;
  return (
    <tr class="leaf">
      <th scope="row">
        <a href={to("tables", entry.name)}>{entry.name.split(".").slice(2).join(".")}</a>
      </th>
      <td class="right">
        <Count value={found?.rows} />
      </td>
      <td class="right">
        <Bytes value={found && found.base_bytes + found.staged_bytes} />
      </td>
      <td class="right wide">
        <Count value={found && found.base_files + found.staged_files} />
      </td>
      <td class="right wide">
        {found && !Number(found.staged_rows) ? <span class="nothing">0</span> : <Count value={found?.staged_rows} />}
      </td>
      <td class="right">
        <Ago at={found?.changed_at} />
      </td>
    </tr>
  );
}

function NoTables() {
  return (
    <EmptyState title="There are no tables yet">
      <p>
        {mayAnywhere("admin") ? (
          <>
            <a href={to("load")}>Load a file</a>, or from a shell:
          </>
        ) : (
          "From a shell:"
        )}
      </p>
      <pre>{`crannog load orders.csv shop.sales.orders --create --key order_id`}</pre>
    </EmptyState>
  );
}
