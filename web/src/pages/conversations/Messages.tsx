import { writeJson, type Json } from "../../api/json";
import type { Message, MessagePart } from "../../api/conversations";
import { Button, Code } from "../../components";
import { bytes, count } from "../../format/numbers";
import { encoded } from "../trace/Attributes";
import { piecesOf } from "./transcript";
import "./conversations.css";

const NAMES: Record<string, string> = {
  system: "System",
  user: "User",
  assistant: "Assistant",
  tool: "Tool",
  input: "Input",
  output: "Output",
};

/** One message: who says it, and its parts. What people and models wrote is text, never markup. */
export function MessageView({ message, onAll }: { message: Message; onAll?: (() => void) | undefined }) {
  const role = NAMES[message.role] ? message.role : "other";
  const parts = message.parts.filter((part) => part.type !== "text" || part.text || part.cut > 0);
  if (parts.length === 0) return null;
  const body = parts.map((part, index) => <PartView key={index} part={part} onAll={onAll} />);
  const who = (
    <>
      {NAMES[message.role] ?? message.role}
      {message.name && <span class="muted"> {message.name}</span>}
    </>
  );
  if (message.role === "system")
    return (
      <details class="message system">
        <summary>{who}</summary>
        {body}
      </details>
    );
  return (
    <div class={`message ${role}`}>
      <div class="message-role">
        {who}
        {message.finish_reason && message.finish_reason !== "stop" && (
          <span class="muted"> ended by {message.finish_reason}</span>
        )}
      </div>
      {body}
    </div>
  );
}

function PartView({ part, onAll }: { part: MessagePart; onAll?: (() => void) | undefined }) {
  return (
    <>
      <Content part={part} />
      {part.cut > 0 && (
        <p>
          {onAll ? (
            <Button kind="quiet" onClick={onAll}>
              Show {count(part.cut)} more characters
            </Button>
          ) : (
            <span class="hint">{count(part.cut)} more characters</span>
          )}
        </p>
      )}
    </>
  );
}

function Content({ part }: { part: MessagePart }) {
  switch (part.type) {
    case "text":
      return <Text text={part.text ?? ""} />;
    case "reasoning":
      return (
        <details class="reasoning">
          <summary>Reasoning</summary>
          <Text text={part.text ?? ""} />
        </details>
      );
    case "tool_call":
      return <Tool title="Calls" part={part} />;
    case "tool_result":
      return <Tool title="Result" part={part} />;
    case "media":
      return (
        <p class="hint">
          {part.media_type ?? "A file"}
          {part.uri && !part.uri.startsWith("data:") ? `: ${part.uri}` : ", not shown"}
        </p>
      );
    default:
      return <Code text={part.text ?? written(part.value)} label={part.type} most={1_500} />;
  }
}

function Tool({ title, part }: { title: string; part: MessagePart }) {
  const text = part.text ?? written(part.value);
  return (
    <div class="tool">
      <div class="tool-head">
        <span class="muted">{title}</span> {part.name && <code>{part.name}</code>}{" "}
        {part.id && <span class="muted">{part.id}</span>}
      </div>
      {text !== "null" && text !== "" && (
        <Code text={text} label={title === "Calls" ? "arguments" : "result"} most={1_500} />
      )}
    </div>
  );
}

const SHORT = 80;

/** A value as text: on one line if it is short. */
function written(value: Json): string {
  if (typeof value === "string") return value;
  const line = writeJson(value);
  return line.length <= SHORT ? line : writeJson(value, 2);
}

function Text({ text }: { text: string }) {
  const data = encoded(text.trim());
  if (data)
    return (
      <p class="hint">
        {bytes(data.size)} of {data.type}, as base64
      </p>
    );
  return (
    <>
      {piecesOf(text).map((piece, index) =>
        piece.isCode ? (
          <Code key={index} text={piece.text} label={piece.language ? `${piece.language} code` : "code"} />
        ) : (
          <p key={index} class="said">
            {piece.text}
          </p>
        ),
      )}
    </>
  );
}
