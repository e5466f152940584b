import { useState } from "preact/hooks";
import { hide, MOST_KEYS, type Found, type FoundInTable, type Identifier } from "../../api/erasure";
import { asError, type ApiError } from "../../api/errors";
import { may } from "../../api/session";
import type { TableDescription } from "../../api/tables";
import { to } from "../../app/router";
import {
  Badge,
  Button,
  Checkbox,
  Code,
  EmptyState,
  ErrorBox,
  Panel,
  Table,
  TextField,
  type Column,
} from "../../components";
import { writeJson } from "../../api/json";
import { counted } from "../../format/numbers";
import { EraseDialog } from "./EraseDialog";

interface Props {
  found: Found;
  known: readonly Identifier[];
  tables: readonly TableDescription[];
  onAdd: (identifier: Identifier) => void;
  actor: string;
  reason: string;
  onActor: (actor: string) => void;
  onReason: (reason: string) => void;
}

const SPANS = "crannog.traces.spans";

/** What was found where; one chooses what to hide or to erase. */
export function FoundPanel(props: Props) {
  const { found, actor, reason } = props;
  const [left, setLeft] = useState<ReadonlySet<string>>(new Set());
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const [error, setError] = useState<ApiError | undefined>();
  const [busy, setBusy] = useState(false);
  const [asks, setAsks] = useState(false);
  const tables = found.tables.filter((each) => !left.has(each.table) && may("admin", each.table));
  const traces = found.traces && !left.has(SPANS) && may("admin", SPANS) ? found.traces : null;
  const rows = tables.reduce((sum, each) => sum + each.keys.length, 0);
  const more = tables.find((each) => each.more);
  const choose = (name: string, on: boolean) => {
    const next = new Set(left);
    if (on) next.delete(name);
    else next.add(name);
    setLeft(next);
  };
  const hideNow = async () => {
    setBusy(true);
    setError(undefined);
    try {
      for (const each of tables) {
        await hide(each, { actor, reason });
        setHidden((before) => new Set(before).add(each.table));
      }
    } catch (thrown) {
      setError(asError(thrown));
    } finally {
      setBusy(false);
    }
  };
  const nothing = found.tables.length === 0 && !found.traces;
  const because = !reason.trim()
    ? "Write the reason first, such as the number of the request"
    : !actor.trim()
      ? "Write who does it first"
      : undefined;
  const suggested = related(found, props.known, props.tables);
  const lines: Line[] = [...found.tables, ...(found.traces ? [SPANS as typeof SPANS] : [])];
  const columns: Column<Line>[] = [
    {
      id: "where",
      title: "Where",
      cell: (line) => <Where line={line} chosen={!left.has(nameOf(line))} choose={choose} />,
    },
    {
      id: "amount",
      title: "Found",
      align: "right",
      cell: (line) =>
        line === SPANS
          ? `${counted(found.traces!.traces, "trace")}, ${counted(found.traces!.spans, "span")}`
          : `${counted(line.keys.length, "row")}${line.more ? " and more" : ""}`,
    },
    { id: "by", title: "By", wide: true, cell: (line) => (line === SPANS ? found.traces!.by : line.by).join(", ") },
    {
      id: "what",
      title: "What",
      cell: (line) =>
        line === SPANS ? (
          <span class="hint wraps">
            {Object.entries(found.traces!.services)
              .map(([service, spans]) => `${service}: ${counted(spans, "span")}`)
              .join(", ")}
          </span>
        ) : (
          <details>
            <summary>Keys</summary>
            <Code label={`Keys in ${line.table}`} text={line.keys.map((key) => writeJson(key)).join("\n")} />
          </details>
        ),
    },
    {
      id: "state",
      title: "State",
      cell: (line) =>
        line !== SPANS && hidden.has(line.table) ? <Badge tone="ok">hidden</Badge> : <span class="nothing">–</span>,
    },
  ];
  return (
    <>
      <Panel title="2. What was found" flush>
        {nothing ? (
          <EmptyState title="Nothing was found">
            <p>
              Looked in {counted(found.looked, "table")}
              {" and the traces"}, for exactly these values. Check the names of the columns and attributes, or add
              another value that the person is known by.
            </p>
          </EmptyState>
        ) : (
          <Table label="What was found" columns={columns} rows={lines} rowKey={nameOf} />
        )}
        {(suggested.length > 0 || found.keyless.length > 0 || found.failed.length > 0) && (
          <div class="erase-notes">
            {suggested.map((each) => (
              <p key={`${each.name} ${each.value}`}>
                Other tables have a column <code>{each.name}</code> too.{" "}
                <Button onClick={() => props.onAdd(each)}>
                  Also look by {each.name} = {each.value}
                </Button>
              </p>
            ))}
            {found.keyless.map((name) => (
              <p key={name}>
                <Badge tone="warn">no key</Badge> <a href={to("tables", name)}>{name}</a> has matching rows but no key,
                so that they cannot be erased one by one: write the table anew without them.
              </p>
            ))}
            {found.failed.map((each) => (
              <p key={each.table}>
                <Badge tone="error">not searched</Badge> {each.table}: {each.message}
              </p>
            ))}
          </div>
        )}
      </Panel>
      {!nothing && (
        <Panel title="3. Hide or erase">
          <div class="form-row">
            <TextField label="Who does it" value={actor} onInput={props.onActor} />
            <TextField
              label="Reason"
              class="grow"
              placeholder="Request 2026-114, article 17"
              value={reason}
              onInput={props.onReason}
            />
          </div>
          <p class="hint">Both are kept with the receipt: do not write the person’s data here.</p>
          {error && <ErrorBox error={error} />}
          {more && (
            <p class="erase-more">
              <Badge tone="warn">more rows</Badge> {more.table} has more than {MOST_KEYS} matching rows; these are the
              first. Do this again afterwards until nothing is found.
            </p>
          )}
          <div class="erase-choices">
            <div>
              <Button
                busy={busy}
                because={because ?? (tables.length ? undefined : "No rows of a table are chosen")}
                onClick={() => void hideNow()}
              >
                Hide {counted(rows, "row")} now
              </Button>
              <p class="hint">
                Takes a moment. No query of this server shows them any more; the files keep them until the next fold and
                vacuum. Traces cannot be hidden.
              </p>
            </div>
            <div>
              <Button
                kind="danger"
                because={because ?? (tables.length || traces ? undefined : "Nothing is chosen")}
                onClick={() => setAsks(true)}
              >
                Erase now…
              </Button>
              <p class="hint">
                Takes longer. Removes them from every file, also of old versions, checks every file, and gives a
                receipt. Cannot be undone.
              </p>
            </div>
          </div>
        </Panel>
      )}
      {asks && <EraseDialog tables={tables} traces={traces} why={{ actor, reason }} onClose={() => setAsks(false)} />}
    </>
  );
}

type Line = FoundInTable | typeof SPANS;

const nameOf = (line: Line) => (line === SPANS ? SPANS : line.table);

interface WhereProps {
  line: Line;
  chosen: boolean;
  choose: (name: string, on: boolean) => void;
}

function Where({ line, chosen, choose }: WhereProps) {
  const name = nameOf(line);
  const allowed = may("admin", name);
  return (
    <>
      <Checkbox
        label={line === SPANS ? "Traces" : line.table}
        checked={chosen && allowed}
        disabled={!allowed}
        onChange={(on) => choose(name, on)}
      />
      {!allowed && <p class="hint">Your token may not erase here: it needs admin.</p>}
    </>
  );
}

/** Keys that were found and that other tables have a column for: the orders of a customer who was found by mail. */
function related(found: Found, known: readonly Identifier[], tables: readonly TableDescription[]): Identifier[] {
  const suggestions = new Map<string, Identifier>();
  for (const each of found.tables) {
    const [name, ...others] = each.keyColumns;
    if (!name || others.length || each.keys.length > 3) continue;
    const elsewhere = tables.some(
      (table) => table.name !== each.table && table.columns.some((column) => column.name === name),
    );
    for (const key of elsewhere ? each.keys : []) {
      const value = String(key[name]);
      if (!known.some((one) => one.name === name && one.value === value))
        suggestions.set(`${name} ${value}`, { name, value });
    }
  }
  return [...suggestions.values()];
}
