/**
 * For the person who answers requests for erasure: find, look, hide, erase, and print one receipt.
 *
 * What a person is known by is not in the address: addresses stay in the browser's history and in the logs of proxies.
 */

import { useState } from "preact/hooks";
import { find, listReceipts, searchableTables, type Found, type Identifier } from "../../api/erasure";
import { asError, type ApiError } from "../../api/errors";
import { mayAnywhere, session } from "../../api/session";
import { useAnswer } from "../../api/useAnswer";
import { to } from "../../app/router";
import {
  Ago,
  Button,
  Checkbox,
  Count,
  EmptyState,
  ErrorBox,
  PageHead,
  Panel,
  Shown,
  Table,
  TextField,
  type Column,
} from "../../components";
import type { Receipt } from "../../api/erasure";
import { FoundPanel } from "./FoundPanel";
import "./erase.css";

const ATTRIBUTES = ["enduser.id", "user.id", "user.email", "session.id", "gen_ai.conversation.id"];
const MOST_RECEIPTS = 50;

export default function ErasePage() {
  if (!mayAnywhere("admin"))
    return (
      <>
        <PageHead title="Erase" />
        <EmptyState title="Your token may not erase">
          <p>Erasing needs the right admin. Ask whoever runs this server for a token that has it.</p>
        </EmptyState>
      </>
    );
  return <Form />;
}

function Form() {
  const tables = useAnswer(searchableTables, []);
  const receipts = useAnswer((signal) => listReceipts(MOST_RECEIPTS, signal), []);
  const [known, setKnown] = useState<Identifier[]>([{ name: "", value: "" }]);
  const [inTraces, setInTraces] = useState(true);
  const [actor, setActor] = useState(session.value?.name ?? "");
  const [reason, setReason] = useState("");
  const [found, setFound] = useState<Found | undefined>();
  const [error, setError] = useState<ApiError | undefined>();
  const [busy, setBusy] = useState(false);
  const whole = known.filter((each) => each.name.trim() && each.value.trim());
  const names = [...new Set([...(tables.data ?? []).flatMap((table) => table.columns.map((each) => each.name))])];
  const suggestions = [...names.filter((name) => !name.startsWith("_")).sort(), ...ATTRIBUTES];

  const change = (index: number, part: Partial<Identifier>) => {
    setKnown(known.map((each, place) => (place === index ? { ...each, ...part } : each)));
    setFound(undefined);
  };
  const look = async (identifiers: readonly Identifier[]) => {
    setBusy(true);
    setError(undefined);
    try {
      setFound(await find(identifiers, tables.data ?? (await searchableTables()), inTraces));
    } catch (thrown) {
      setError(asError(thrown));
    } finally {
      setBusy(false);
    }
  };
  const add = (identifier: Identifier) => {
    const all = [...whole, identifier];
    setKnown(all);
    void look(all);
  };
  return (
    <>
      <PageHead title="Erase">
        <p class="hint">
          Finds a person in all tables and traces that your token reaches, hides or erases what was found, and keeps one
          receipt, without the person’s data, to print.
        </p>
      </PageHead>
      <Panel title="1. Whom">
        <form
          class="erase-form"
          onSubmit={(event) => {
            event.preventDefault();
            if (whole.length) void look(whole);
          }}
        >
          {known.map((each, index) => (
            <div class="form-row" key={index}>
              <TextField
                label={index ? `Column or attribute ${index + 1}` : "Column or attribute"}
                hideLabel={index > 0}
                placeholder="customer_id, email, enduser.id …"
                suggestions={suggestions}
                value={each.name}
                spellcheck={false}
                autocomplete="off"
                onInput={(name) => change(index, { name })}
              />
              <TextField
                label={index ? `Is ${index + 1}` : "Is"}
                hideLabel={index > 0}
                value={each.value}
                spellcheck={false}
                autocomplete="off"
                onInput={(value) => change(index, { value })}
              />
              <Button
                kind="quiet"
                aria-label={`Remove line ${index + 1}`}
                disabled={known.length === 1}
                onClick={() => {
                  setKnown(known.filter((_each, place) => place !== index));
                  setFound(undefined);
                }}
              >
                Remove
              </Button>
            </div>
          ))}
          <div class="form-row">
            <Button onClick={() => setKnown([...known, { name: "", value: "" }])}>Add another</Button>
            <Checkbox label="Also in traces" checked={inTraces} onChange={setInTraces} />
            <Button
              kind="primary"
              type="submit"
              busy={busy}
              because={whole.length ? undefined : "Write at least one column or attribute, and its value"}
            >
              {busy ? "Looking…" : "Find"}
            </Button>
          </div>
          <p class="hint">
            A row counts if any of these fits exactly. Nothing is changed by looking, and these values do not go into
            the address.
          </p>
        </form>
      </Panel>
      {error && <ErrorBox error={error} retry={() => void look(whole)} />}
      {found && (
        <FoundPanel
          key={JSON.stringify(whole)}
          found={found}
          known={whole}
          tables={tables.data ?? []}
          onAdd={add}
          actor={actor}
          reason={reason}
          onActor={setActor}
          onReason={setReason}
        />
      )}
      <Panel title="Receipts" flush>
        <Shown of={receipts} empty={(all) => all.length === 0 && <NoReceipts />}>
          {(all) => <Table label="Receipts" columns={columns} rows={all} rowKey={(each) => each.erasure_id} />}
        </Shown>
      </Panel>
    </>
  );
}

const columns: Column<Receipt>[] = [
  {
    id: "receipt",
    title: "Receipt",
    cell: (each) => <a href={to("receipts", each.erasure_id)}>{each.erasure_id.slice(0, 12)}</a>,
  },
  { id: "reason", title: "Reason", cell: (each) => <span class="wraps">{each.reason || "–"}</span> },
  { id: "actor", title: "By", wide: true, cell: (each) => <span class="wraps">{each.actor || "–"}</span> },
  { id: "tables", title: "Tables", wide: true, cell: (each) => <span class="wraps">{each.tables.join(", ")}</span> },
  { id: "rows", title: "Rows", align: "right", cell: (each) => <Count value={each.rows_erased} /> },
  { id: "when", title: "Erased", align: "right", cell: (each) => <Ago at={each.erased_at} /> },
];

function NoReceipts() {
  return (
    <EmptyState title="Nothing has been erased yet">
      <p>Each erasure leaves a receipt here: what was found where, before and after, and no data of the person.</p>
    </EmptyState>
  );
}
