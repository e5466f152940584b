/** Conversations with language models: tokens over time, and the sessions. */

import { useMemo, useState } from "preact/hooks";
import { listSessions, usageOf, type Session, type UsagePoint } from "../../api/conversations";
import { useAnswer } from "../../api/useAnswer";
import { choice, text, useAddress, whole } from "../../app/address";
import { boundsOf, lengthOf, rangeParameters } from "../../app/range";
import { to } from "../../app/router";
import {
  Badge,
  Button,
  Count,
  EmptyState,
  PageHead,
  Panel,
  RangePicker,
  Select,
  Shown,
  Table,
  TextField,
  Time,
  TimeChart,
  type Column,
} from "../../components";
import { colourOf } from "../../format/colours";
import { counted, digits, shortCount } from "../../format/numbers";
import { nowNs } from "../../format/times";
import "./conversations.css";

const MEASURES = [
  ["tokens", "Tokens"],
  ["input_tokens", "Input tokens"],
  ["output_tokens", "Output tokens"],
  ["cost", "Cost"],
  ["calls", "Calls"],
  ["errors", "Errors"],
] as const;
type Measure = (typeof MEASURES)[number][0];
const SIZE = 50;

export default function ConversationsPage() {
  const [state, set] = useAddress({
    ...rangeParameters("7d"),
    q: text(),
    by: choice(["model", "user", "service"]),
    of: choice(MEASURES.map(([value]) => value)),
    offset: whole(0),
  });
  const [typed, setTyped] = useState(state.q);
  const bounds = useMemo(() => boundsOf(state), [state.last, state.start, state.end]);
  const selection = {
    where: state.q || undefined,
    start: bounds.start?.toString(),
    end: bounds.end?.toString(),
  };
  const inputs = [state.q, bounds];
  const sessions = useAnswer(
    (signal) => listSessions({ ...selection, limit: SIZE, offset: state.offset }, signal),
    [...inputs, state.offset],
  );
  const step = stepOf((bounds.end ?? nowNs()) - (bounds.start ?? 0n), state.last);
  const usage = useAnswer(
    (signal) => usageOf({ ...selection, step: step.text, group_by: state.by }, signal),
    [...inputs, state.by, step.text],
  );
  return (
    <>
      <PageHead title="Conversations" />
      <Panel>
        <form
          class="form-row"
          onSubmit={(event) => {
            event.preventDefault();
            set({ q: typed, offset: 0 }, { push: true });
          }}
        >
          <TextField
            label="Filter"
            class="mono"
            placeholder='model = "gpt-5.2" and error'
            value={typed}
            onInput={setTyped}
          />
          <RangePicker range={state} onChange={(range) => set({ ...range, offset: 0 }, { push: true })} />
          <Button kind="primary" type="submit">
            Search
          </Button>
        </form>
      </Panel>
      <Panel
        title="Use over time"
        actions={
          <div class="usage-choice">
            <Select label="Measure" hideLabel value={state.of} onChange={(of) => set({ of })} options={MEASURES} />
            <Select
              label="By"
              hideLabel
              value={state.by}
              onChange={(by) => set({ by })}
              options={[
                ["model", "by model"],
                ["user", "by user"],
                ["service", "by service"],
              ]}
            />
          </div>
        }
      >
        <Shown
          of={usage}
          what="Adding up"
          empty={(points) => points.length === 0 && <p class="hint">No calls of models in this time.</p>}
        >
          {(points) => <Usage points={points} by={state.by} of={state.of} seconds={step.seconds} />}
        </Shown>
      </Panel>
      <Panel title="Sessions" flush>
        <Shown
          of={sessions}
          what="Reading sessions"
          empty={(page) => page.sessions.length === 0 && <NoSessions offset={state.offset} />}
        >
          {(page) => (
            <>
              <Table label="Sessions" columns={columns} rows={page.sessions} rowKey={(each) => each.session_id} />
              {(state.offset > 0 || page.next_offset !== null) && (
                <div class="pager">
                  <Button
                    disabled={state.offset === 0}
                    onClick={() => set({ offset: Math.max(0, state.offset - SIZE) }, { push: true })}
                  >
                    ← Newer
                  </Button>
                  <Button
                    disabled={page.next_offset === null}
                    onClick={() => set({ offset: page.next_offset ?? 0 }, { push: true })}
                  >
                    Older →
                  </Button>
                </div>
              )}
            </>
          )}
        </Shown>
      </Panel>
    </>
  );
}

const STEPS = [
  [60, "1m"],
  [300, "5m"],
  [900, "15m"],
  [1_800, "30m"],
  [3_600, "1h"],
  [10_800, "3h"],
  [21_600, "6h"],
  [43_200, "12h"],
  [86_400, "1d"],
] as const;

/** Returns a step that makes about fifty points of a range. */
function stepOf(ns: bigint, last: string): { seconds: number; text: string } {
  const seconds = Number((lengthOf(last) ?? ns) / 1_000_000_000n) / 60;
  const [chosen, text] = STEPS.find(([each]) => each >= seconds) ?? STEPS[STEPS.length - 1]!;
  return { seconds: chosen, text };
}

const MOST_SERIES = 8;

function valueOf(point: UsagePoint, of: Measure): number {
  return of === "tokens" ? point.input_tokens + point.output_tokens : (point[of] ?? 0);
}

function Usage({ points, by, of, seconds }: { points: UsagePoint[]; by: string; of: Measure; seconds: number }) {
  const { times, series, totals } = useMemo(() => {
    const at = (point: UsagePoint) => Date.parse(point.start ?? "") / 1_000;
    const [first, last] = [Math.min(...points.map(at)), Math.max(...points.map(at))];
    const times: number[] = [];
    for (let time = first; time <= last; time += seconds) times.push(time);
    const sums = new Map<string, number>();
    const name = (point: UsagePoint) => point.group[by] ?? "none";
    for (const point of points) sums.set(name(point), (sums.get(name(point)) ?? 0) + valueOf(point, of));
    const totals = [...sums].sort((a, b) => b[1] - a[1]);
    const series = totals.slice(0, MOST_SERIES).map(([label]) => {
      const values = times.map(() => 0);
      for (const point of points)
        if (name(point) === label) values[Math.round((at(point) - first) / seconds)]! += valueOf(point, of);
      return { label, values, colour: colourOf(label) };
    });
    return { times, series, totals };
  }, [points, by, of, seconds]);
  const format = of === "cost" ? digits : shortCount;
  const all = totals.reduce((sum, [, value]) => sum + value, 0);
  return (
    <>
      <p class="hint">
        {format(all)} {of.replace("_", " ")} of {counted(totals.length, by)}
        {totals.length > MOST_SERIES && `; the ${MOST_SERIES} with most are drawn`}
      </p>
      <TimeChart label={`${of.replace("_", " ")} over time by ${by}`} times={times} series={series} format={format} />
    </>
  );
}

const columns: Column<Session>[] = [
  {
    id: "session",
    title: "Session",
    cell: (session) => <a href={to("conversations", session.session_id)}>{session.session_id}</a>,
  },
  { id: "users", title: "Users", cell: (session) => session.users.join(", ") || <span class="nothing">–</span> },
  {
    id: "models",
    title: "Models",
    wide: true,
    cell: (session) => session.models.join(", ") || <span class="nothing">–</span>,
  },
  {
    id: "errors",
    title: "Errors",
    wide: true,
    cell: (session) => (session.errors ? <Badge tone="error">{session.errors}</Badge> : <span class="nothing">–</span>),
  },
  { id: "traces", title: "Turns", align: "right", cell: (session) => <Count value={session.traces} /> },
  { id: "calls", title: "Calls", align: "right", wide: true, cell: (session) => <Count value={session.calls} /> },
  {
    id: "input",
    title: "Tokens in",
    align: "right",
    wide: true,
    cell: (session) => <Count value={session.input_tokens} />,
  },
  {
    id: "output",
    title: "Tokens out",
    align: "right",
    wide: true,
    cell: (session) => <Count value={session.output_tokens} />,
  },
  {
    id: "cost",
    title: "Cost",
    align: "right",
    wide: true,
    cell: (session) => (session.cost === null ? <span class="nothing">–</span> : digits(session.cost)),
  },
  { id: "end", title: "Last active", align: "right", cell: (session) => <Time at={session.end_ns} /> },
];

function NoSessions({ offset }: { offset: number }) {
  if (offset > 0) return <EmptyState title="No further sessions" />;
  return (
    <EmptyState title="No sessions in this time">
      <p>
        Widen the time or drop the filter. A session is made of spans with <code>session.id</code> or{" "}
        <code>gen_ai.conversation.id</code>; most instrumentations for language models can set one.
      </p>
    </EmptyState>
  );
}
