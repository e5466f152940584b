/** Traces: search by a form, results as a list. All of it is in the address. */

import { useState } from "preact/hooks";
import { listServices, searchTraces, type TraceSummary } from "../../api/traces";
import { useAnswer } from "../../api/useAnswer";
import { choice, flag, large, text, useAddress, whole } from "../../app/address";
import { to } from "../../app/router";
import {
  Badge,
  Button,
  Checkbox,
  Count,
  Duration,
  EmptyState,
  PageHead,
  Panel,
  Select,
  Shown,
  Swatch,
  Table,
  TextField,
  Time,
  type Column,
} from "../../components";
import { colourOf } from "../../format/colours";

const ORDERS = ["newest", "oldest", "longest", "shortest", "most_spans", "most_errors"] as const;

export default function TracesPage() {
  const [state, set] = useAddress({
    service: text(),
    q: text(),
    start: large(),
    end: large(),
    errors: flag(),
    order: choice(ORDERS),
    limit: whole(50),
    cursor: text(),
  });
  const [typed, setTyped] = useState(state.q);
  const services = useAnswer(listServices, []);
  const traces = useAnswer(
    (signal) =>
      searchTraces(
        {
          service: state.service || undefined,
          where: state.q || undefined,
          start: state.start?.toString(),
          end: state.end?.toString(),
          has_errors: state.errors || undefined,
          order: state.order,
          limit: state.limit,
          cursor: state.cursor || undefined,
        },
        signal,
      ),
    [state],
  );
  const submit = (event: Event) => {
    event.preventDefault();
    set({ q: typed, cursor: "" }, { push: true });
  };
  return (
    <>
      <PageHead title="Traces" />
      <Panel>
        <form class="form-row" onSubmit={submit}>
          <Select
            label="Service"
            value={state.service}
            onChange={(service) => set({ service, cursor: "" }, { push: true })}
            options={[
              ["", "All services"],
              ...(services.data ?? (state.service ? [state.service] : [])).map((name) => [name, name] as const),
            ]}
          />
          <TextField
            label="Filter"
            class="mono"
            placeholder='duration > 100ms and http.route = "/checkout"'
            value={typed}
            onInput={setTyped}
          />
          <Select
            label="Order"
            value={state.order}
            onChange={(order) => set({ order, cursor: "" }, { push: true })}
            options={ORDERS.map((each) => [each, each.replace("_", " ")] as const)}
          />
          <Checkbox
            label="With errors"
            checked={state.errors}
            onChange={(errors) => set({ errors, cursor: "" }, { push: true })}
          />
          <Button kind="primary" type="submit">
            Search
          </Button>
        </form>
        {(state.start !== null || state.end !== null) && (
          <p class="hint">
            From <Time at={state.start} /> until <Time at={state.end} />{" "}
            <Button kind="quiet" onClick={() => set({ start: null, end: null, cursor: "" }, { push: true })}>
              Any time
            </Button>
          </p>
        )}
      </Panel>
      <Panel flush>
        <Shown of={traces} what="Searching" empty={(page) => page.traces.length === 0 && <Nothing />}>
          {(page) => (
            <>
              <Table label="Traces" columns={columns} rows={page.traces} rowKey={(trace) => trace.trace_id} />
              <div class="pager">
                <Button
                  disabled={!page.previous_cursor}
                  onClick={() => set({ cursor: page.previous_cursor ?? "" }, { push: true })}
                >
                  ← Newer
                </Button>
                <Button
                  disabled={!page.next_cursor}
                  onClick={() => set({ cursor: page.next_cursor ?? "" }, { push: true })}
                >
                  Older →
                </Button>
              </div>
            </>
          )}
        </Shown>
      </Panel>
    </>
  );
}

const columns: Column<TraceSummary>[] = [
  {
    id: "name",
    title: "Trace",
    cell: (trace) => (
      <>
        <Swatch index={colourOf(trace.root_service ?? "")} />
        <a href={to("traces", trace.trace_id)}>
          {trace.root_service ?? "?"}: {trace.root_operation ?? "root not received"}
        </a>
      </>
    ),
  },
  {
    id: "errors",
    title: "Errors",
    cell: (trace) =>
      trace.error_count ? <Badge tone="error">{trace.error_count}</Badge> : <span class="nothing">–</span>,
  },
  { id: "spans", title: "Spans", align: "right", cell: (trace) => <Count value={trace.span_count} /> },
  { id: "duration", title: "Duration", align: "right", cell: (trace) => <Duration ns={trace.duration_ns} /> },
  { id: "start", title: "Start", align: "right", wide: true, cell: (trace) => <Time at={trace.start_ns} digits={3} /> },
];

function Nothing() {
  return (
    <EmptyState title="No trace matches">
      <p>
        Widen the time or drop a condition; <a href={to("traces")}>show all traces</a>.
      </p>
    </EmptyState>
  );
}
