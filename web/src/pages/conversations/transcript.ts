/** A conversation from the calls of its traces: each call repeats what was said before, a transcript says it once. */

import { writeJson } from "../../api/json";
import type { Message, SpanMessages } from "../../api/conversations";

/** What a call added to the conversation; or a step beside it, such as a tool or an agent. */
export interface Entry {
  span: SpanMessages;
  isCall: boolean;
  messages: Message[];
}

const STEPS =
  /^(invoke_agent|create_agent|invoke_workflow|execute_tool|AGENT|CHAIN|TOOL|RETRIEVER|GUARDRAIL|EVALUATOR|PROMPT)$/i;
const COMPARED = 2_000;

/** Whether a span is a call of a model, whose messages are the conversation. */
function isCall(span: SpanMessages): boolean {
  return (
    !STEPS.test(span.operation ?? "") && (span.model !== null || span.output.some((each) => each.role === "assistant"))
  );
}

function signature(message: Message): string {
  const parts = message.parts
    .filter((part) => part.text || part.value !== null || part.uri)
    .map((part) => [part.type, part.name, part.text?.slice(0, COMPARED) ?? "", part.uri, part.value]);
  return `${message.role} ${writeJson(parts).slice(0, 2 * COMPARED)}`;
}

/** Returns the entries of one trace, in the order of time. `said` holds what earlier ones said, and grows. */
export function entriesOf(spans: readonly SpanMessages[], said: string[]): Entry[] {
  const sorted = [...spans].sort((a, b) =>
    a.start_ns < b.start_ns ? -1 : a.start_ns > b.start_ns ? 1 : a.row - b.row,
  );
  const hasCalls = sorted.some(isCall);
  return sorted.map((span) => {
    if (hasCalls && !isCall(span)) return { span, isCall: false, messages: [...span.input, ...span.output] };
    const messages: Message[] = [];
    // The history comes in the same order as it was said: what is found after the last found is no news.
    let at = 0;
    for (const message of span.input) {
      const own = signature(message);
      const found = said.indexOf(own, at);
      if (found >= 0) {
        at = found + 1;
      } else {
        messages.push(message);
        said.push(own);
        at = said.length;
      }
    }
    for (const message of span.output) {
      messages.push(message);
      said.push(signature(message));
    }
    return { span, isCall: true, messages };
  });
}

/** A piece of a text: as it is, or code between fences. */
export interface Piece {
  isCode: boolean;
  language: string;
  text: string;
}

/** Splits a text at fences of Markdown; nothing else of Markdown is read. */
export function piecesOf(text: string): Piece[] {
  const pieces: Piece[] = [];
  const fence = /^(```+|~~~+)[ \t]*([\w+#.-]*)[^\n]*\n([\s\S]*?)(?:\n\1[ \t]*$|$(?![\s\S]))/gm;
  let last = 0;
  for (const match of text.matchAll(fence)) {
    const before = text.slice(last, match.index).trim();
    if (before) pieces.push({ isCode: false, language: "", text: before });
    pieces.push({ isCode: true, language: match[2] ?? "", text: match[3] ?? "" });
    last = match.index + match[0].length;
  }
  const rest = text.slice(last).trim();
  if (rest) pieces.push({ isCode: false, language: "", text: rest });
  return pieces;
}
