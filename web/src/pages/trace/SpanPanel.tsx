import { useEffect, useRef, useState } from "preact/hooks";
import { messagesOf } from "../../api/conversations";
import { writeJson } from "../../api/json";
import type { SpanEvent, TreeSpan } from "../../api/trace";
import { useAnswer, type Answered } from "../../api/useAnswer";
import { to } from "../../app/router";
import { Badge, Button, Code, CopyButton, Duration, KeyValue, Shown, Swatch, Tabs, Time } from "../../components";
import { colourOf } from "../../format/colours";
import { count, duration, percent } from "../../format/numbers";
import { MessageView } from "../conversations/Messages";
import { Attributes, AttributeSearch, Value } from "./Attributes";

const WHOLE_CHARS = 2_000_000;
const TABS = ["details", "events", "links", "json"] as const;
type Tab = (typeof TABS)[number];

interface Props {
  answer: Answered<TreeSpan | undefined>;
  traceStart: bigint;
  traceLength: number;
  onClose: () => void;
  onZoomTo: (span: TreeSpan) => void;
}

/** Everything about one span. */
export function SpanPanel({ answer, traceStart, traceLength, onClose, onZoomTo }: Props) {
  const panel = useRef<HTMLElement>(null);
  // Where the panel is below the rows, one would not see that it opened.
  useEffect(() => panel.current?.scrollIntoView({ block: "nearest" }), []);
  return (
    <aside class="span-panel" aria-label="Span" ref={panel}>
      <Shown of={answer} what="Reading the span">
        {(span) => span && <SpanDetails key={span.span_id} {...{ span, traceStart, traceLength, onClose, onZoomTo }} />}
      </Shown>
      {!answer.data && (
        <Button kind="quiet" onClick={onClose}>
          Close
        </Button>
      )}
    </aside>
  );
}

interface DetailProps extends Omit<Props, "answer"> {
  span: TreeSpan;
}

function SpanDetails({ span, traceStart, traceLength, onClose, onZoomTo }: DetailProps) {
  const [tab, setTab] = useState<Tab>("details");
  const length = Number(BigInt(span.end_ns) - BigInt(span.start_ns));
  const after = Number(BigInt(span.start_ns) - traceStart);
  return (
    <>
      <div class="span-head">
        <h2>
          <Swatch index={colourOf(span.service)} /> {span.name}
        </h2>
        <button type="button" class="button quiet" aria-label="Close the span" onClick={onClose}>
          ×
        </button>
      </div>
      <p class="span-badges">
        {span.service} <Badge>{(span.kind ?? "unspecified").toLowerCase()}</Badge>{" "}
        {span.status === "ERROR" ? (
          <Badge tone="error">error</Badge>
        ) : (
          span.status === "OK" && <Badge tone="ok">ok</Badge>
        )}{" "}
        {span.orphan && <Badge tone="warn">orphan: its parent has not arrived</Badge>}{" "}
        {span.in_cycle && <Badge tone="warn">cycle: it is its own ancestor</Badge>}{" "}
        {span.starts_early && <Badge tone="warn">starts before its parent</Badge>}{" "}
        {span.ends_late && <Badge tone="warn">ends after its parent</Badge>}
      </p>
      {span.status_message && (
        <p class="span-message">
          <Value value={span.status_message} />
        </p>
      )}
      <KeyValue
        pairs={[
          ["Duration", <Share ns={length} of={traceLength * 1_000} />],
          ["Self", <Share ns={span.self_ns} of={length} />],
          ["Critical path", span.critical_ns > 0 ? <Share ns={span.critical_ns} of={length} /> : "not on it"],
          [
            "Start",
            <>
              <Time at={span.start_ns} digits={6} /> · after {duration(after)}
            </>,
          ],
          ["Below it", `${count(span.children)} children, ${count(span.descendants)} spans`],
          [
            "Span id",
            <>
              <code>{span.span_id}</code> <CopyButton text={span.span_id} label="copy" what="span id" />
            </>,
          ],
        ]}
      />
      <p class="actions">
        <Button kind="quiet" onClick={() => onZoomTo(span)}>
          Zoom to it
        </Button>
        <CopyButton text={() => location.href} label="Copy link" what="link" />
      </p>
      <Tabs
        label="Parts of the span"
        value={tab}
        onChange={setTab}
        tabs={[
          { value: "details", label: "Attributes" },
          { value: "events", label: `Events ${span.events.length || ""}` },
          { value: "links", label: `Links ${span.links.length || ""}` },
          { value: "json", label: "JSON" },
        ]}
      >
        {tab === "details" && <Details span={span} />}
        {tab === "events" && <Events events={span.events} start={BigInt(span.start_ns)} />}
        {tab === "links" && <Links span={span} />}
        {tab === "json" && <Code text={jsonOf(span)} label="span as JSON" />}
      </Tabs>
    </>
  );
}

function Share({ ns, of }: { ns: number; of: number }) {
  return (
    <>
      <Duration ns={ns} /> {of > 0 && <span class="muted">{percent(ns / of)}</span>}
    </>
  );
}

function Details({ span }: { span: TreeSpan }) {
  const [search, setSearch] = useState("");
  const exceptions = span.events.filter((event) => event.name === "exception");
  return (
    <>
      {exceptions.length > 0 && <Events events={exceptions} start={BigInt(span.start_ns)} />}
      <LanguageModel span={span} />
      <AttributeSearch value={search} onInput={setSearch} />
      <h3>Attributes</h3>
      <Attributes label="Attributes" level="span" values={span.attributes} search={search} />
      <h3>Resource</h3>
      <Attributes label="Resource" level="resource" values={span.resource ?? {}} search={search} />
      <h3>
        Scope <span class="muted">{[span.scope_name, span.scope_version].filter(Boolean).join(" ")}</span>
      </h3>
      <Attributes label="Scope" level="scope" values={span.scope_attributes ?? {}} search={search} />
    </>
  );
}

/** What a call to a model was given and returned. */
function LanguageModel({ span }: { span: TreeSpan }) {
  const [whole, setWhole] = useState(false);
  const isOne = span.input !== null || span.output !== null || span.model !== null;
  const messages = useAnswer(
    async (signal) => {
      const query = { span_id: span.span_id, ...(whole ? { max_chars: WHOLE_CHARS } : {}) };
      const [found] = (await messagesOf(span.trace_id, query, signal)).spans;
      return found;
    },
    [span.span_id, whole],
    { when: isOne },
  );
  if (!isOne) return null;
  return (
    <section class="span-model">
      <h3>Language model</h3>
      <KeyValue
        pairs={[
          ["Model", span.model],
          ["Tokens", span.input_tokens === null ? null : `${span.input_tokens} in, ${span.output_tokens ?? 0} out`],
          ["Cost", span.cost],
          [
            "Conversation",
            span.session_id && (
              <a href={to("conversations", span.session_id, { trace: span.trace_id })}>{span.session_id}</a>
            ),
          ],
          ["User", span.user_id],
        ]}
      />
      <Shown of={messages} what="Reading the messages">
        {(found) =>
          [...(found?.input ?? []), ...(found?.output ?? [])].map((message, index) => (
            <MessageView key={index} message={message} onAll={() => setWhole(true)} />
          ))
        }
      </Shown>
    </section>
  );
}

function Events({ events, start }: { events: SpanEvent[]; start: bigint }) {
  if (events.length === 0) return <p class="hint">The span has no events.</p>;
  return (
    <ul class="span-events">
      {events.map((event, index) => {
        const {
          "exception.stacktrace": stack,
          "exception.type": type,
          "exception.message": message,
          ...rest
        } = event.attributes;
        const isException = event.name === "exception";
        return (
          <li key={index}>
            <div class="span-event-head">
              {isException ? (
                <Badge tone="error">{typeof type === "string" ? type : "exception"}</Badge>
              ) : (
                <b>{event.name}</b>
              )}{" "}
              <span class="muted">after {duration(Number(BigInt(event.time_ns) - start))}</span>
            </div>
            {message !== undefined && (
              <p>
                <Value value={message} />
              </p>
            )}
            {typeof stack === "string" && <Code text={stack} label="stack" most={2_000} />}
            {Object.keys(rest).length > 0 && <Attributes label="Attributes of the event" level="event" values={rest} />}
          </li>
        );
      })}
    </ul>
  );
}

function Links({ span }: { span: TreeSpan }) {
  if (span.links.length === 0) return <p class="hint">The span has no links.</p>;
  return (
    <ul class="span-events">
      {span.links.map((link, index) => (
        <li key={index}>
          <a href={to("traces", link.trace_id, { span: link.span_id })}>
            {link.trace_id === span.trace_id ? "A span of this trace" : <>Trace {link.trace_id.slice(0, 16)}…</>}, span{" "}
            {link.span_id}
          </a>
          {Object.keys(link.attributes ?? {}).length > 0 && (
            <Attributes label="Attributes of the link" level="link" values={link.attributes!} />
          )}
        </li>
      ))}
    </ul>
  );
}

/** The span as the server sent it, but for where it is in the tree. */
function jsonOf(span: TreeSpan): string {
  const { path: _path, ...rest } = span as TreeSpan & { path?: unknown };
  return writeJson(rest, 2);
}
