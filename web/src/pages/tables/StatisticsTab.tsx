/** What each column holds: nulls, distinct values, bounds, frequent values, and a small distribution. */

import { tableFacets, type ColumnFacets, type TableDescription } from "../../api/tables";
import { useAnswer } from "../../api/useAnswer";
import { list, useAddress } from "../../app/address";
import { to } from "../../app/router";
import { Badge, Button, EmptyState, Panel, Shown } from "../../components";
import { writeJson } from "../../api/json";
import type { ResultColumn } from "../../format/cells";
import { count, digits, percent, shortCount } from "../../format/numbers";
import { shortTime } from "../../format/times";
import { filterText, readFilter, writeFilter } from "./filters";

const TOP = 6;

export function StatisticsTab({ table, columns }: { table: TableDescription; columns: readonly ResultColumn[] }) {
  const types = new Map(columns.map((column) => [column.name, column.type]));
  const [state, set] = useAddress({ where: list() });
  const facets = useAnswer(
    (signal) => tableFacets(table.name, { where: state.where, top: TOP, bins: 24 }, signal),
    [table.name, table.version, state.where],
  );
  return (
    <Shown
      of={facets}
      what="Reading the columns"
      empty={(found) =>
        Number(found.rows) === 0 && (
          <Panel>
            <EmptyState title="There are no rows to look at">
              {state.where.length > 0 && <Button onClick={() => set({ where: [] })}>Remove the filters</Button>}
            </EmptyState>
          </Panel>
        )
      }
    >
      {(found) => (
        <>
          <p class="statistics-note">
            {count(found.rows)} rows looked at{" "}
            {found.sampled && <Badge tone="warn">a sample of {shortCount(table.rows)}</Badge>}
            {state.where.map((each) => {
              const filter = readFilter(each);
              return <Badge key={each}>{filter ? filterText(filter) : each}</Badge>;
            })}
            {state.where.length > 0 && (
              <Button kind="quiet" onClick={() => set({ where: [] }, { push: true })}>
                Remove the filters
              </Button>
            )}
          </p>
          <div class="facets">
            {found.columns.map((column) => (
              <Facet
                key={column.name}
                table={table.name}
                column={{ ...column, type: types.get(column.name) ?? column.type }}
                rows={Number(found.rows)}
              />
            ))}
          </div>
        </>
      )}
    </Shown>
  );
}

/** Whether so many rows differ that the most frequent values say nothing. */
function mostlyUnique(column: ColumnFacets, rows: number): boolean {
  return Number(column.top?.[0]?.count ?? 0) <= Math.max(1, rows / 1000);
}

function shown(value: unknown, type = ""): string {
  if (type === "timestamp" && typeof value === "string") return shortTime(value);
  if (value === null || value === undefined) return "–";
  if (typeof value === "string") return value === "" ? "empty text" : value;
  if (typeof value === "number" && !Number.isInteger(value)) return digits(value);
  if (typeof value === "number" || typeof value === "bigint") return count(value);
  return writeJson(value);
}

function Facet({ table, column, rows }: { table: string; column: ColumnFacets; rows: number }) {
  const top = column.top ?? [];
  const bins = column.histogram ?? [];
  const nulls = Number(column.nulls);
  return (
    <Panel
      title={
        <>
          <span class="mono">{column.name}</span> <span class="hint">{column.type}</span>
        </>
      }
    >
      <dl class="facet-figures">
        <div>
          <dt>Nulls</dt>
          <dd>{nulls ? `${shortCount(nulls)} (${percent(column.null_share)})` : "none"}</dd>
        </div>
        <div>
          <dt>Distinct</dt>
          <dd>
            {column.distinct === null || column.distinct === undefined ? "–" : `≈ ${shortCount(column.distinct)}`}
          </dd>
        </div>
        {column.mean !== null && column.mean !== undefined && (
          <div>
            <dt>Mean</dt>
            <dd>{Math.abs(column.mean) < 1e12 ? digits(column.mean) : column.mean.toExponential(3)}</dd>
          </div>
        )}
      </dl>
      {bins.length > 1 && <Histogram column={column} bins={bins} />}
      {top.length > 0 && bins.length <= 1 && !mostlyUnique(column, rows) && (
        <ul class="top-values" aria-label={`Most frequent values of ${column.name}`}>
          {top.map((each, place) => (
            <li key={place}>
              <span
                class="share-bar"
                aria-hidden="true"
                style={{ width: `${(100 * Number(each.count)) / Math.max(1, rows)}%` }}
              />
              <a
                class="top-value"
                href={to("tables", table, { where: [valueFilter(column.name, each.value)] })}
                title={shown(each.value)}
              >
                {shown(each.value)}
              </a>
              <span class="number">{percent(Number(each.count) / Math.max(1, rows))}</span>
            </li>
          ))}
        </ul>
      )}
      {bins.length <= 1 && mostlyUnique(column, rows) && column.min !== null && column.min !== undefined && (
        <p class="facet-range hint">
          from <span title={shown(column.min)}>{shown(column.min, column.type)}</span> to{" "}
          <span title={shown(column.max)}>{shown(column.max, column.type)}</span>
        </p>
      )}
    </Panel>
  );
}

function valueFilter(column: string, value: unknown): string {
  return value === null
    ? writeFilter({ column, operator: "is_null" })
    : writeFilter({ column, operator: "=", value: writeJson(value) });
}

const [WIDTH, HEIGHT] = [260, 56];

function Histogram({ column, bins }: { column: ColumnFacets; bins: NonNullable<ColumnFacets["histogram"]> }) {
  const most = Math.max(1, ...bins.map((bin) => Number(bin.count)));
  const step = WIDTH / bins.length;
  return (
    <figure>
      <svg
        class="histogram"
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`Distribution of ${column.name} from ${shown(column.min)} to ${shown(column.max)}`}
      >
        {bins.map((bin, place) => {
          const height = Number(bin.count) ? Math.max(1.5, (Number(bin.count) / most) * HEIGHT) : 0;
          return (
            <rect
              key={place}
              x={place * step + 0.5}
              y={HEIGHT - height}
              width={Math.max(0.5, step - 1)}
              height={height}
            >
              <title>{`${shown(bin.low, column.type)} to ${shown(bin.high, column.type)}: ${count(bin.count)}`}</title>
            </rect>
          );
        })}
      </svg>
      <figcaption class="facet-range hint">
        <span title={shown(column.min)}>{shown(column.min, column.type)}</span>
        <span title={shown(column.max)}>{shown(column.max, column.type)}</span>
      </figcaption>
    </figure>
  );
}
