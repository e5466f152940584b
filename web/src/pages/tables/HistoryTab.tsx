/** The versions of the base: what made each, how to look at one, and how two differ. */

import { runSql } from "../../api/sql";
import { tableHistory, type TableDescription, type Version } from "../../api/tables";
import { useAnswer } from "../../api/useAnswer";
import { useAddress, whole } from "../../app/address";
import { to } from "../../app/router";
import {
  Ago,
  Badge,
  Button,
  Count,
  EmptyState,
  Panel,
  Select,
  Shown,
  Table,
  Time,
  type Column,
} from "../../components";
import { cellNumber } from "../../format/cells";
import { count } from "../../format/numbers";
import { quoted, quotedName } from "../../format/sql";

export function HistoryTab({ table }: { table: TableDescription }) {
  const [state, set] = useAddress({ limit: whole(50), a: whole(-1), b: whole(-1) });
  const history = useAnswer(
    (signal) => tableHistory(table.name, state.limit, signal),
    [table.name, table.version, state.limit],
  );
  return (
    <Shown of={history} empty={(found) => found.length === 0 && <EmptyState title="There is no version yet" />}>
      {(versions) => (
        <>
          <Compare
            table={table}
            versions={versions}
            a={state.a}
            b={state.b}
            set={(chosen) => set(chosen, { push: true })}
          />
          <Panel title="Versions of the base, newest first" flush>
            <Table label="Versions" columns={columnsFor(table)} rows={versions} rowKey={(version) => version.version} />
            {versions.length === state.limit && (
              <div class="pager">
                <Button onClick={() => set({ limit: state.limit * 4 })}>Show more</Button>
              </div>
            )}
          </Panel>
          <p class="hint">
            Changes that are staged belong to no version until a fold writes them into the base: now{" "}
            {count(table.staged_rows)} rows.
          </p>
        </>
      )}
    </Shown>
  );
}

function columnsFor(table: TableDescription): Column<Version>[] {
  return [
    {
      id: "version",
      title: "Version",
      cell: (each) => (
        <>
          {each.version} {each.version === table.version && <Badge tone="ok">newest</Badge>}
        </>
      ),
    },
    { id: "operation", title: "Made by", cell: (each) => operationText(each) },
    {
      id: "changes",
      title: "What changed",
      wide: true,
      cell: (each) => <span class="hint breaks">{metricsText(each)}</span>,
    },
    {
      id: "time",
      title: "When",
      cell: (each) => (
        <>
          <Ago at={BigInt(each.timestamp) * 1_000_000n} />{" "}
          <span class="hint wide-only">
            <Time at={BigInt(each.timestamp) * 1_000_000n} />
          </span>
        </>
      ),
    },
    {
      id: "look",
      title: "Rows",
      align: "right",
      cell: (each) => (
        <a href={to("tables", table.name, { version: each.version })} aria-label={`Look at version ${each.version}`}>
          Look
        </a>
      ),
    },
  ];
}

function operationText(version: Version): string {
  return version.operation.toLowerCase().replace(/_/g, " ");
}

function metricsText(version: Version): string {
  const metrics = Object.entries(version.operationMetrics ?? {});
  const parts = metrics.length ? metrics : Object.entries(version.operationParameters ?? {});
  return parts
    .slice(0, 6)
    .map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(" · ");
}

interface CompareProps {
  table: TableDescription;
  versions: readonly Version[];
  a: number;
  b: number;
  set: (chosen: { a?: number; b?: number }) => void;
}

/** Counts the rows of two versions and, in a table with a key, the keys that only one of them has. */
function Compare({ table, versions, a, b, set }: CompareProps) {
  const newest = versions[0]!.version;
  const [first, second] = [
    a >= 0 ? a : Math.max(versions[versions.length - 1]!.version, newest - 1),
    b >= 0 ? b : newest,
  ];
  const asked = a >= 0 || b >= 0;
  const result = useAnswer((signal) => compare(table, first, second, signal), [table.name, first, second], {
    when: asked && first !== second,
  });
  const options = versions.map((each) => [String(each.version), `version ${each.version}`] as const);
  return (
    <Panel title="Compare two versions">
      <div class="form-row compare">
        <Select
          label="From"
          value={String(first)}
          onChange={(value) => set({ a: Number(value), b: second })}
          options={options}
        />
        <Select
          label="To"
          value={String(second)}
          onChange={(value) => set({ a: first, b: Number(value) })}
          options={options}
        />
        {!asked && (
          <Button
            because={versions.length < 2 ? "There is only one version" : undefined}
            onClick={() => set({ a: first, b: second })}
          >
            Compare
          </Button>
        )}
      </div>
      {asked &&
        (first === second ? (
          <p class="hint">Choose two different versions.</p>
        ) : (
          <Shown of={result} what="Counting">
            {(found) => (
              <dl class="facet-figures compare-result">
                <div>
                  <dt>Rows in {first}</dt>
                  <dd>
                    <Count value={found.before} />
                  </dd>
                </div>
                <div>
                  <dt>Rows in {second}</dt>
                  <dd>
                    <Count value={found.after} />
                  </dd>
                </div>
                <div>
                  <dt>Difference</dt>
                  <dd>
                    {found.after >= found.before ? "+" : "−"}
                    <Count value={Math.abs(found.after - found.before)} />
                  </dd>
                </div>
                {found.added !== null && (
                  <div>
                    <dt>Keys added</dt>
                    <dd>
                      <Count value={found.added} />
                    </dd>
                  </div>
                )}
                {found.removed !== null && (
                  <div>
                    <dt>Keys removed</dt>
                    <dd>
                      <Count value={found.removed} />
                    </dd>
                  </div>
                )}
              </dl>
            )}
          </Shown>
        ))}
    </Panel>
  );
}

interface Compared {
  before: number;
  after: number;
  added: number | null;
  removed: number | null;
}

async function compare(table: TableDescription, a: number, b: number, signal: AbortSignal): Promise<Compared> {
  const at = (version: number) => `${quotedName(table.name)} VERSION AS OF ${version}`;
  const one = async (sql: string) => {
    const found = await runSql({ sql }, crypto.randomUUID(), () => {}, signal);
    return cellNumber(found.table.getChildAt(0), 0) ?? 0;
  };
  const keys = table.key.map(quoted).join(", ");
  const only = (left: number, right: number) =>
    `SELECT count(*) AS n FROM (SELECT ${keys} FROM ${at(left)} EXCEPT SELECT ${keys} FROM ${at(right)}) d`;
  const [before, after, added, removed] = await Promise.all([
    one(`SELECT count(*) AS n FROM ${at(a)}`),
    one(`SELECT count(*) AS n FROM ${at(b)}`),
    table.key.length ? one(only(b, a)) : null,
    table.key.length ? one(only(a, b)) : null,
  ]);
  return { before, after, added, removed };
}
