/** Two traces side by side: what changed between them, path by path. */

import { useState } from "preact/hooks";
import { compareTraces, type PathChange } from "../../api/trace";
import { useAnswer } from "../../api/useAnswer";
import { choice, text, useAddress } from "../../app/address";
import { to } from "../../app/router";
import {
  Badge,
  Button,
  Duration,
  EmptyState,
  Figure,
  PageHead,
  Panel,
  Select,
  Shown,
  Swatch,
  Table,
  TextField,
  type Column,
  type Tone,
} from "../../components";
import { colourOf } from "../../format/colours";
import { count, counted, duration, percent } from "../../format/numbers";
import "./trace.css";

const KINDS = ["all", "added", "removed", "slower", "faster", "same"] as const;
const TONES: Record<PathChange["change"], Tone> = {
  added: "warn",
  removed: "warn",
  slower: "warn",
  faster: "ok",
  same: "neutral",
};

export default function ComparePage() {
  const [state, set] = useAddress({ a: text(), b: text(), change: choice(KINDS) });
  const [before, setBefore] = useState(state.a);
  const [after, setAfter] = useState(state.b);
  const found = useAnswer((signal) => compareTraces(state.a, state.b, signal), [state.a, state.b], {
    when: state.a !== "" && state.b !== "",
  });
  return (
    <>
      <PageHead title="Compare traces" above={<a href={to("traces")}>Traces</a>} />
      <Panel>
        <form
          class="form-row"
          onSubmit={(event) => {
            event.preventDefault();
            set({ a: before.trim(), b: after.trim() }, { push: true });
          }}
        >
          <TextField
            label="Before: trace id"
            class="mono"
            value={before}
            onInput={setBefore}
            required
            spellcheck={false}
          />
          <TextField
            label="After: trace id"
            class="mono"
            value={after}
            onInput={setAfter}
            required
            spellcheck={false}
          />
          <Button kind="primary" type="submit">
            Compare
          </Button>
          <Button
            onClick={() => {
              setBefore(after);
              setAfter(before);
              set({ a: after.trim(), b: before.trim() }, { push: true });
            }}
          >
            Swap
          </Button>
        </form>
      </Panel>
      {state.a === "" || state.b === "" ? (
        <EmptyState title="Choose two traces">
          <p>
            Copy the id of a trace from its page, or from <a href={to("traces")}>a search</a>. Spans are matched by
            their path of services and operations.
          </p>
        </EmptyState>
      ) : (
        <Shown of={found} what="Comparing">
          {(both) => (
            <>
              <div class="figures">
                <Figure
                  label="Before"
                  value={<Duration ns={both.duration_before_ns} />}
                  note={counted(both.spans_before, "span")}
                  href={to("traces", both.trace_id_before)}
                />
                <Figure
                  label="After"
                  value={<Duration ns={both.duration_after_ns} />}
                  note={counted(both.spans_after, "span")}
                  href={to("traces", both.trace_id_after)}
                />
                <Figure
                  label="Difference"
                  value={signed(both.duration_after_ns - both.duration_before_ns)}
                  note={change(both.duration_before_ns, both.duration_after_ns)}
                />
              </div>
              <Panel
                title="Paths, the largest difference first"
                flush
                actions={
                  <Select
                    label="Change"
                    hideLabel
                    value={state.change}
                    onChange={(kind) => set({ change: kind })}
                    options={KINDS.map((kind) => [kind, kind === "all" ? "All changes" : kind] as const)}
                  />
                }
              >
                <Changes
                  changes={both.changes.filter((each) => state.change === "all" || each.change === state.change)}
                />
              </Panel>
            </>
          )}
        </Shown>
      )}
    </>
  );
}

function signed(ns: number): string {
  return `${ns > 0 ? "+" : ns < 0 ? "−" : ""}${duration(Math.abs(ns))}`;
}

function change(before: number, after: number): string {
  if (before === 0) return "";
  return `${after >= before ? "+" : "−"}${percent(Math.abs(after - before) / before)}`;
}

function Changes({ changes }: { changes: PathChange[] }) {
  if (changes.length === 0) return <EmptyState title="No path changed in this way" />;
  const most = Math.max(...changes.map((each) => Math.max(each.duration_before_ns, each.duration_after_ns)), 1);
  return <Table label="Paths" columns={columnsOf(most)} rows={changes} rowKey={(_change, index) => index} />;
}

function columnsOf(most: number): Column<PathChange>[] {
  const share = (ns: number) => `${Math.max(0.5, (100 * ns) / most)}%`;
  return [
    {
      id: "path",
      title: "Path",
      cell: ({ path }) => {
        const [service, operation] = path[path.length - 1] ?? ["", ""];
        return (
          <div class="change-path" title={path.map((step) => step.join(": ")).join("\n")}>
            <Swatch index={colourOf(service)} /> {service}: {operation}
            {path.length > 1 && (
              <div class="step hint">
                in{" "}
                {path
                  .slice(0, -1)
                  .map((step) => step[1])
                  .join(" › ")}
              </div>
            )}
          </div>
        );
      },
    },
    { id: "change", title: "Change", cell: (each) => <Badge tone={TONES[each.change]}>{each.change}</Badge> },
    {
      id: "bars",
      title: "Before and after",
      wide: true,
      cell: (each) => (
        <div class="change-bar" aria-hidden="true">
          <span style={{ width: share(each.duration_before_ns) }} />
          <span class="after" style={{ width: share(each.duration_after_ns) }} />
        </div>
      ),
    },
    {
      id: "before",
      title: "Mean before",
      align: "right",
      cell: (each) => shown(each.count_before, each.duration_before_ns),
    },
    {
      id: "after",
      title: "Mean after",
      align: "right",
      cell: (each) => shown(each.count_after, each.duration_after_ns),
    },
    {
      id: "difference",
      title: "Difference",
      align: "right",
      cell: (each) => <span class="number">{signed(each.duration_after_ns - each.duration_before_ns)}</span>,
    },
  ];
}

function shown(spans: number, ns: number) {
  if (spans === 0) return <span class="nothing">–</span>;
  return (
    <>
      <Duration ns={ns} /> {spans > 1 && <span class="muted">× {count(spans)}</span>}
    </>
  );
}
