/** The audit: who asked what of the server, and what came of it. */

import { useState } from "preact/hooks";
import { pageAudit, type AuditEntry } from "../../api/audit";
import { mayAnywhere } from "../../api/session";
import { useAnswer } from "../../api/useAnswer";
import { flag, text, useAddress } from "../../app/address";
import { to } from "../../app/router";
import {
  Badge,
  Button,
  Checkbox,
  Code,
  Count,
  Duration,
  EmptyState,
  PageHead,
  Panel,
  Shown,
  Table,
  TextField,
  Time,
  type Column,
} from "../../components";
import { readTime } from "../../format/times";
import "./audit.css";

const PAGE = 100;

export default function AuditPage() {
  const [state, set] = useAddress({
    who: text(),
    verb: text(),
    table: text(),
    failed: flag(),
    from: text(),
    until: text(),
    after: text(),
    before: text(),
  });
  const [typed, setTyped] = useState(state);
  const allowed = mayAnywhere("admin");
  const [start, end] = [instant(state.from), instant(state.until)];
  const page = useAnswer(
    (signal) =>
      pageAudit(
        {
          who: state.who,
          verb: state.verb,
          table: state.table,
          failed: state.failed,
          start: start || null,
          end: end || null,
        },
        { limit: PAGE, after: state.after || undefined, before: state.before || undefined },
        signal,
      ),
    [state],
    { when: allowed && start !== undefined && end !== undefined },
  );
  if (!allowed) return <NotAllowed />;
  const entries = page.data?.entries ?? [];
  const seen = (of: (entry: AuditEntry) => string | null) =>
    [...new Set(entries.flatMap((each) => of(each) ?? []))].sort();
  const submit = (event: Event) => {
    event.preventDefault();
    set({ ...typed, after: "", before: "" }, { push: true });
  };
  return (
    <>
      <PageHead title="Audit" above={<a href={to("upkeep")}>Upkeep</a>} />
      <Panel>
        <form class="form-row" onSubmit={submit}>
          <TextField
            label="Who"
            value={typed.who}
            suggestions={seen((each) => each.who)}
            onInput={(who) => setTyped({ ...typed, who })}
          />
          <TextField
            label="Verb"
            value={typed.verb}
            suggestions={seen((each) => each.verb)}
            onInput={(verb) => setTyped({ ...typed, verb })}
          />
          <TextField
            label="Table"
            value={typed.table}
            suggestions={seen((each) => each.table)}
            onInput={(table) => setTyped({ ...typed, table })}
          />
          <TextField
            label="From"
            placeholder="2026-11-17 08:00"
            value={typed.from}
            error={instant(typed.from) === undefined ? "A time is 2026-11-17 or 2026-11-17 08:00" : undefined}
            onInput={(from) => setTyped({ ...typed, from })}
          />
          <TextField
            label="Until"
            placeholder="2026-11-18"
            value={typed.until}
            error={instant(typed.until) === undefined ? "A time is 2026-11-17 or 2026-11-17 08:00" : undefined}
            onInput={(until) => setTyped({ ...typed, until })}
          />
          <Checkbox
            label="Only what failed"
            checked={typed.failed}
            onChange={(failed) => {
              setTyped({ ...typed, failed });
              set({ ...typed, failed, after: "", before: "" }, { push: true });
            }}
          />
          <Button kind="primary" type="submit">
            Show
          </Button>
        </form>
      </Panel>
      <Panel flush>
        {page.error?.status === 404 ? (
          <AuditOff />
        ) : (
          <Shown of={page} empty={(found) => found.entries.length === 0 && <Nothing />}>
            {(found) => (
              <>
                <Table
                  label="Audit"
                  columns={columns}
                  rows={found.entries}
                  rowKey={(each, index) => `${each.request_id} ${each.verb} ${index}`}
                />
                <div class="pager">
                  <Button
                    disabled={!found.previous}
                    onClick={() => set({ before: found.previous ?? "", after: "" }, { push: true })}
                  >
                    ← Newer
                  </Button>
                  <Button
                    disabled={!found.next}
                    onClick={() => set({ after: found.next ?? "", before: "" }, { push: true })}
                  >
                    Older →
                  </Button>
                </div>
              </>
            )}
          </Shown>
        )}
      </Panel>
    </>
  );
}

/** An instant as the server takes it; empty for empty text, undefined if the text is not a time. */
function instant(text: string): string | undefined {
  if (!text.trim()) return "";
  const ns = readTime(text);
  return ns === null ? undefined : new Date(Number(ns / 1_000_000n)).toISOString();
}

const columns: Column<AuditEntry>[] = [
  {
    id: "time",
    title: "Time",
    cell: (each) => (
      <span class="audit-time">
        <Time at={each.time} digits={3} />
      </span>
    ),
  },
  { id: "who", title: "Who", cell: (each) => <span title={each.address ?? ""}>{each.who}</span> },
  { id: "what", title: "What", cell: (each) => <What entry={each} /> },
  {
    id: "status",
    title: "Result",
    cell: (each) =>
      each.status >= 400 ? (
        <>
          <Badge tone="error">{each.status}</Badge> <span class="hint audit-text">{each.error}</span>
        </>
      ) : (
        <Badge tone="ok">{each.status}</Badge>
      ),
  },
  { id: "rows", title: "Rows", align: "right", wide: true, cell: (each) => <Count value={each.rows} /> },
  {
    id: "took",
    title: "Took",
    align: "right",
    wide: true,
    cell: (each) => <Duration ns={Math.round(each.elapsed_ms * 1e6)} />,
  },
];

function What({ entry }: { entry: AuditEntry }) {
  return (
    <span class="audit-text">
      {entry.verb.replace(/_/g, " ")} {entry.table && <a href={to("tables", entry.table)}>{entry.table}</a>}
      {(entry.requests ?? 1) > 1 && (
        <span class="hint">
          {" "}
          <Count value={entry.requests} /> requests
        </span>
      )}
      {entry.sql && (
        <details>
          <summary>SQL</summary>
          <Code label="Statement" text={entry.sql} />
        </details>
      )}
    </span>
  );
}

function Nothing() {
  return (
    <EmptyState title="No request matches">
      <p>
        A part of a name is enough; <a href={to("audit")}>show all requests</a>. New ones show within a few seconds.
      </p>
    </EmptyState>
  );
}

function AuditOff() {
  return (
    <EmptyState title="This server keeps no audit">
      <p>Start it with the setting audit on, which is the default:</p>
      <pre>CRANNOG_AUDIT=true crannog serve</pre>
    </EmptyState>
  );
}

function NotAllowed() {
  return (
    <>
      <PageHead title="Audit" />
      <EmptyState title="Your token may not read the audit">
        <p>It shows what all callers did, so that it needs the right admin. Ask whoever runs this server.</p>
      </EmptyState>
    </>
  );
}
