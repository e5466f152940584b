/** One conversation as a conversation: its turns in the order of time, each a trace. */

import { useEffect, useMemo, useState } from "preact/hooks";
import {
  listSessions,
  messagesOf,
  sessionFilter,
  type SpanMessages,
  type TraceMessages,
} from "../../api/conversations";
import { asError } from "../../api/errors";
import { searchTraces, type TraceSummary } from "../../api/traces";
import { useAnswer } from "../../api/useAnswer";
import { flag, text, useAddress } from "../../app/address";
import type { PageProps } from "../../app/pages";
import { to } from "../../app/router";
import { useTitle } from "../../app/title";
import {
  Badge,
  Button,
  Checkbox,
  CopyButton,
  Duration,
  EmptyState,
  PageHead,
  Panel,
  Shown,
  Time,
  toast,
} from "../../components";
import { counted, digits } from "../../format/numbers";
import "./conversations.css";
import { MessageView } from "./Messages";
import { entriesOf, type Entry } from "./transcript";

const TURNS = 25;
const WHOLE_CHARS = 2_000_000;

interface Turn {
  trace: TraceSummary;
  messages: TraceMessages;
}

export default function ConversationPage({ params }: PageProps) {
  const id = params.sessionId ?? "";
  const [state, set] = useAddress({ trace: text(), steps: flag(), cursor: text() });
  useTitle(id);
  const session = useAnswer((signal) => listSessions({ where: sessionFilter(id), limit: 1 }, signal), [id]);
  const page = useAnswer(
    async (signal) => {
      const query = { where: sessionFilter(id), order: "oldest", limit: TURNS, cursor: state.cursor || undefined };
      const found = await searchTraces(query, signal);
      const turns = await Promise.all(
        found.traces.map(async (trace) => ({ trace, messages: await messagesOf(trace.trace_id, {}, signal) })),
      );
      return { turns, next: found.next_cursor, previous: found.previous_cursor };
    },
    [id, state.cursor],
  );
  const facts = session.data?.sessions[0];
  return (
    <>
      <PageHead
        title={id}
        above={<a href={to("conversations")}>Conversations</a>}
        actions={
          <>
            <a class="button" href={to("traces", { q: sessionFilter(id), last: "any" })}>
              Traces
            </a>
            <CopyButton text={() => location.href} label="Copy link" what="link" />
          </>
        }
      >
        {facts && (
          <p class="session-facts">
            <Time at={facts.start_ns} />
            <span>
              <Duration ns={BigInt(facts.end_ns) - BigInt(facts.start_ns)} />
            </span>
            <span>{counted(facts.traces, "turn")}</span>
            <span>{counted(facts.calls, "call")}</span>
            <span>
              {counted(facts.input_tokens, "token")} in, {counted(facts.output_tokens, "token")} out
            </span>
            {facts.cost !== null && <span>cost {digits(facts.cost)}</span>}
            <span>{facts.models.join(", ")}</span>
            {facts.users.map((user) => (
              <a key={user} href={to("conversations", { q: `user = ${JSON.stringify(user)}` })}>
                {user}
              </a>
            ))}
            {facts.errors > 0 && <Badge tone="error">{counted(facts.errors, "error")}</Badge>}
          </p>
        )}
      </PageHead>
      <p>
        <Checkbox
          label="Show tools, agents and other steps"
          checked={state.steps}
          onChange={(steps) => set({ steps })}
        />
      </p>
      <Shown of={page} what="Reading the conversation" empty={(found) => found.turns.length === 0 && <Nothing />}>
        {(found) => (
          <>
            <Transcript turns={found.turns} showsSteps={state.steps} chosen={state.trace} />
            {(found.next || found.previous) && (
              <div class="pager">
                <Button
                  disabled={!found.previous}
                  onClick={() => set({ cursor: found.previous ?? "" }, { push: true })}
                >
                  ← Earlier turns
                </Button>
                <Button disabled={!found.next} onClick={() => set({ cursor: found.next ?? "" }, { push: true })}>
                  Later turns →
                </Button>
              </div>
            )}
          </>
        )}
      </Shown>
    </>
  );
}

function Nothing() {
  return (
    <EmptyState title="There is no such conversation">
      <p>
        Its spans may have been erased or expired. <a href={to("conversations")}>All conversations</a>.
      </p>
    </EmptyState>
  );
}

interface TranscriptProps {
  turns: Turn[];
  showsSteps: boolean;
  chosen: string;
}

function Transcript({ turns, showsSteps, chosen }: TranscriptProps) {
  // Spans that were read again without a limit on their texts.
  const [whole, setWhole] = useState<Record<string, SpanMessages>>({});
  const said = useMemo(() => {
    const heard: string[] = [];
    return turns.map(({ messages }) =>
      entriesOf(
        messages.spans.map((span) => whole[span.span_id] ?? span),
        heard,
      ),
    );
  }, [turns, whole]);
  useEffect(() => {
    if (chosen) document.getElementById(`turn-${chosen}`)?.scrollIntoView({ block: "start" });
  }, [turns]);
  const readAll = (traceId: string, spanId: string) => {
    messagesOf(traceId, { span_id: spanId, max_chars: WHOLE_CHARS }).then(
      ({ spans: [found] }) => found && setWhole((before) => ({ ...before, [spanId]: found })),
      (thrown: unknown) => toast(asError(thrown).message),
    );
  };
  return (
    <div class="transcript">
      {turns.map(({ trace, messages }, index) => (
        <Panel
          key={trace.trace_id}
          title={<span id={`turn-${trace.trace_id}`}>{trace.root_operation ?? `Turn ${index + 1}`}</span>}
          actions={<TurnFacts trace={trace} messages={messages} />}
        >
          {said[index]!.filter((entry) => entry.isCall || showsSteps || entry.span.is_error).map((entry) => (
            <EntryView
              key={entry.span.span_id}
              entry={entry}
              traceId={trace.trace_id}
              onAll={() => readAll(trace.trace_id, entry.span.span_id)}
            />
          ))}
          {messages.spans.length === 0 && <p class="hint">No span of this trace has messages.</p>}
          {messages.next_offset !== null && (
            <p class="hint">
              {counted(messages.total - messages.spans.length, "more span")} with messages:{" "}
              <a href={to("traces", trace.trace_id)}>open the trace</a>.
            </p>
          )}
        </Panel>
      ))}
    </div>
  );
}

function TurnFacts({ trace, messages }: Turn) {
  const sum = (of: (span: SpanMessages) => number | null) =>
    messages.spans.reduce((total, span) => total + (of(span) ?? 0), 0);
  const tokens = sum((span) => span.input_tokens) + sum((span) => span.output_tokens);
  return (
    <span class="turn-facts">
      {trace.error_count > 0 && <Badge tone="error">{counted(trace.error_count, "error")}</Badge>}
      {tokens > 0 && <span>{counted(tokens, "token")}</span>}
      <Duration ns={trace.duration_ns} />
      <Time at={trace.start_ns} />
      <a href={to("traces", trace.trace_id)}>Trace</a>
    </span>
  );
}

interface EntryProps {
  entry: Entry;
  traceId: string;
  onAll: () => void;
}

function EntryView({ entry: { span, isCall, messages }, traceId, onAll }: EntryProps) {
  const link = <a href={to("traces", traceId, { span: span.span_id })}>{isCall ? span.name : "Open the span"}</a>;
  const about = (
    <span class="entry-facts">
      {span.is_error && <Badge tone="error">error</Badge>}
      {isCall ? link : <span>{span.name}</span>}
      {span.model && <span>{span.model}</span>}
      {(span.input_tokens ?? 0) + (span.output_tokens ?? 0) > 0 && (
        <span class="number">
          {span.input_tokens ?? 0} → {counted(span.output_tokens ?? 0, "token")}
        </span>
      )}
      {span.cost !== null && <span class="number">cost {digits(span.cost)}</span>}
      <Duration ns={BigInt(span.end_ns) - BigInt(span.start_ns)} />
    </span>
  );
  const body = messages.map((message, index) => <MessageView key={index} message={message} onAll={onAll} />);
  if (!isCall)
    return (
      <details class="entry step">
        <summary>{about}</summary>
        {body}
        <p class="entry-foot">{link}</p>
      </details>
    );
  return (
    <div class="entry">
      {body}
      <div class="entry-foot">{about}</div>
    </div>
  );
}
