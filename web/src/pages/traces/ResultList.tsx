import type { TracePage, TraceSummary } from "../../api/traces";
import { to } from "../../app/router";
import { Badge, Button, Count, Duration, Swatch, Table, Time, type Column } from "../../components";
import { colourOf, seriesVariable } from "../../format/colours";
import { counted } from "../../format/numbers";
import type { SearchState, SetSearch } from "./search";

interface Props {
  traces: readonly TraceSummary[];
  label: string;
  picked: readonly string[];
  onPick: (picked: string[]) => void;
  /** The traces that just came. */
  fresh?: ReadonlySet<string>;
}

const SERVICES = 4;

/** Traces, one a row: what it is, how long against the longest, what failed, who took part. */
export function ResultList({ traces, label, picked, onPick, fresh }: Props) {
  const longest = traces.reduce((most, trace) => Math.max(most, Number(trace.duration_ns)), 1);
  const columns: Column<TraceSummary>[] = [
    {
      id: "name",
      title: "Trace",
      cell: (trace) => (
        <div class={`trace-name${fresh?.has(trace.trace_id) ? " fresh" : ""}`}>
          <input
            type="checkbox"
            aria-label={`Compare ${nameOf(trace)}, ${trace.trace_id.slice(0, 8)}`}
            checked={picked.includes(trace.trace_id)}
            onChange={(event) => onPick(withPick(picked, trace.trace_id, event.currentTarget.checked))}
          />
          <div>
            <a href={to("traces", trace.trace_id)}>
              <Swatch index={colourOf(trace.root_service ?? "")} />
              {nameOf(trace)}
            </a>
            <div class="trace-line hint">
              <span class="mono" title={trace.trace_id}>
                {trace.trace_id.slice(0, 8)}
              </span>
              <Services names={trace.services} />
              <span class="narrow">
                <Time at={trace.start_ns} digits={3} />
              </span>
              {trace.error_count > 0 && (
                <span class="narrow">
                  <Errors of={trace} />
                </span>
              )}
            </div>
          </div>
        </div>
      ),
    },
    {
      id: "duration",
      title: "Duration",
      cell: (trace) => (
        <div class="trace-duration">
          <Duration ns={trace.duration_ns} />
          <span class="bar" aria-hidden="true">
            <span
              style={{
                width: `${Math.max(0.5, (Number(trace.duration_ns) / longest) * 100)}%`,
                background: seriesVariable(colourOf(trace.root_service ?? "")),
              }}
            />
          </span>
        </div>
      ),
    },
    {
      id: "errors",
      title: "Errors",
      align: "right",
      wide: true,
      cell: (trace) => (trace.error_count ? <Errors of={trace} /> : <span class="nothing">–</span>),
    },
    { id: "spans", title: "Spans", align: "right", cell: (trace) => <Count value={trace.span_count} short /> },
    {
      id: "start",
      title: "Start",
      align: "right",
      wide: true,
      cell: (trace) => <Time at={trace.start_ns} digits={3} />,
    },
  ];
  return <Table label={label} columns={columns} rows={traces} rowKey={(trace) => trace.trace_id} />;
}

function Errors({ of }: { of: TraceSummary }) {
  return (
    <Badge tone="error" title={counted(of.error_count, "span with an error", "spans with errors")}>
      {counted(of.error_count, "error")}
    </Badge>
  );
}

function nameOf(trace: TraceSummary): string {
  return trace.root_service === null
    ? `${trace.services[0] ?? "unknown"}: root not received`
    : `${trace.root_service}: ${trace.root_operation}`;
}

/** The two that were picked last. */
function withPick(picked: readonly string[], traceId: string, on: boolean): string[] {
  const others = picked.filter((each) => each !== traceId);
  return on ? [...others, traceId].slice(-2) : others;
}

function Services({ names }: { names: readonly string[] }) {
  const shown = names.slice(0, SERVICES);
  return (
    <span class="chips" title={names.join(", ")}>
      {shown.map((name) => (
        <span key={name} class="chip">
          <Swatch index={colourOf(name)} />
          {name}
        </span>
      ))}
      {names.length > shown.length && <span>and {names.length - shown.length} more</span>}
    </span>
  );
}

interface PagerProps {
  page: TracePage;
  state: SearchState;
  set: SetSearch;
  /** The point in time that the search was made as of. */
  asOf: bigint;
}

/** To the pages before and after. A relative range keeps its end, so that the pages stay those of one list. */
export function Pager({ page, state, set, asOf }: PagerProps) {
  const turn = (cursor: string | null) => {
    set({ cursor: cursor ?? "", at: state.at ?? asOf }, { push: true });
    scrollTo({ top: 0 });
  };
  return (
    <div class="pager">
      {state.cursor && (
        <Button kind="quiet" onClick={() => set({ cursor: "", at: null }, { push: true })}>
          First page
        </Button>
      )}
      <Button disabled={!page.previous_cursor} onClick={() => turn(page.previous_cursor)}>
        ← Previous
      </Button>
      <Button disabled={!page.next_cursor} onClick={() => turn(page.next_cursor)}>
        Next →
      </Button>
    </div>
  );
}
