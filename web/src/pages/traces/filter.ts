/** The filter language, as far as a page needs it: what may come at a place in the text, and how a condition is written. */

import { complete, type CompletedValue, type SpanSelection } from "../../api/traceAnalysis";
import type { Suggestion, Suggestions } from "../../components";
import { shortCount } from "../../format/numbers";

const FIELDS: Record<string, string> = {
  service: "name of the service",
  operation: "name of the span",
  duration: "of the span",
  error: "the span failed",
  status: "unset, ok, error",
  status_message: "text",
  kind: "server, client, …",
  root: "without a parent",
  text: "words anywhere",
  "event.name": "of any event",
  model: "language model",
  session: "conversation",
  user: "who asked",
  input: "of a language model",
  output: "of a language model",
  input_tokens: "number",
  output_tokens: "number",
  scope: "instrumentation",
  start: "of the span",
  trace_id: "hexadecimal",
};
const VALUES: Record<string, string[]> = {
  kind: ["server", "client", "internal", "producer", "consumer", "unspecified"],
  status: ["error", "ok", "unset"],
  error: ["true", "false"],
  root: ["true", "false"],
  duration: ["10ms", "100ms", "250ms", "1s", "5s", "1m"],
};
const OPERATORS: Record<string, string[]> = {
  duration: [">", ">=", "<", "<="],
  start: [">=", "<"],
  input_tokens: [">", ">=", "<", "="],
  output_tokens: [">", ">=", "<", "="],
  kind: ["=", "!=", "in ("],
  status: ["=", "!="],
  error: ["and", "or", "= false"],
  root: ["and", "or", "= false"],
  text: ["~", "contains"],
};
const COMPARE = ["=", "!=", "in (", "contains", "=~", "!~", ">", "<", "exists", "is"];
export const TOKEN =
  /(?<text>"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?)|(?<operator>=~|!~|!=|<=|>=|[=<>~])|(?<mark>[(),])|(?<word>[^\s"'=<>~!(),]+)|\S/g;
const MOST = 12;

type Wanted = "field" | "operator" | "value" | "connective";

interface Place {
  wanted: Wanted;
  /** The field that an operator or a value belongs to. */
  field: string;
  /** What was begun: the part from `from` to the caret. */
  begun: string;
  from: number;
}

/** Returns what may come where the caret is. */
export function placeIn(text: string, caret: number): Place {
  const before = text.slice(0, caret);
  let [wanted, field, inList]: [Wanted, string, boolean] = ["field", "", false];
  let begun: Place = { wanted, field, begun: "", from: caret };
  for (const match of before.matchAll(TOKEN)) {
    const token = match[0];
    const touches = match.index + token.length === caret;
    const isWord = match.groups?.word !== undefined || match.groups?.text !== undefined;
    const isWhole = match.groups?.text !== undefined && token.length > 1 && token.endsWith(token[0]!);
    // A finished text or mark at the caret is behind it; a word may still go on.
    if (touches && isWord && !isWhole) return { wanted, field, begun: token, from: match.index };
    const word = token.toLowerCase();
    if (wanted === "field") {
      if (word === "not" || token === "(") continue;
      [field, wanted] = [token, "operator"];
    } else if (wanted === "operator") {
      if (word === "and" || word === "or") wanted = "field";
      else if (word === "exists" || token === ")") wanted = "connective";
      else if (word !== "not") [wanted, inList] = ["value", word === "in"];
    } else if (wanted === "value") {
      if (token === "(" || token === ",") continue;
      wanted = inList && token !== ")" ? "value" : "connective";
    } else if (word === "and" || word === "or") {
      wanted = "field";
    }
    begun = { wanted, field, begun: "", from: caret };
  }
  return { ...begun, wanted, field };
}

/** Returns a key as the language writes it: in quotes if it has other characters, or is a word of the language. */
export function writtenKey(key: string): string {
  const plain = /^[A-Za-z_][\w./:@-]*$/.test(key) && !/^(and|or|not|in|is|exists|contains|true|false)$/i.test(key);
  return plain ? key : writtenText(key);
}

export function writtenText(text: string): string {
  return JSON.stringify(text);
}

/** Returns a value as the language writes it; null if values of its kind can only be asked for by `exists`. */
export function writtenValue(value: unknown): string | null {
  if (typeof value === "string") return writtenText(value);
  if (typeof value === "boolean" || typeof value === "bigint") return String(value);
  return typeof value === "number" && Number.isFinite(value) ? String(value) : null;
}

/** Returns both conditions as one. */
export function bothOf(first: string, second: string): string {
  const [left, right] = [first.trim(), second.trim()];
  if (!left || !right) return left || right;
  return `${/\bor\b/i.test(left) ? `(${left})` : left} and ${right}`;
}

function fixed(all: readonly string[], begun: string, notes?: Record<string, string>): Suggestion[] {
  const wanted = begun.toLowerCase();
  return all
    .filter((each) => each.startsWith(wanted) && each !== wanted)
    .map((each) => ({ text: each, insert: `${each} `, ...(notes?.[each] ? { note: notes[each] } : {}) }));
}

const seen = (found: CompletedValue) => `${shortCount(found.count)} spans`;

/** Returns what to offer at a place of a filter: fields and keys, operators, and values that spans have. */
export function suggestions(selection: SpanSelection) {
  return async (text: string, caret: number, signal: AbortSignal): Promise<Suggestions> => {
    const { wanted, field, begun, from } = placeIn(text, caret);
    const options = await optionsAt({ wanted, field, begun, from }, selection, signal);
    return { from, until: caret, options: options.slice(0, MOST) };
  };
}

async function optionsAt(place: Place, selection: SpanSelection, signal: AbortSignal): Promise<Suggestion[]> {
  const { wanted, field, begun } = place;
  if (wanted === "connective") return fixed(["and", "or"], begun);
  if (wanted === "operator") return fixed(OPERATORS[field] ?? COMPARE, begun);
  if (wanted === "field") {
    const own = fixed([...Object.keys(FIELDS), "not"], begun, FIELDS);
    const keys = await complete({ ...selection, what: "key", prefix: begun, limit: MOST }, signal);
    const found = keys.map((each) => {
      const key = String(each.value);
      return { text: key, insert: `${writtenKey(key)} `, note: seen(each) };
    });
    return begun ? [...own, ...found] : [...own.slice(0, 6), ...found];
  }
  if (VALUES[field]) return fixed(VALUES[field], begun);
  const prefix = begun.replace(/^["']/, "");
  const what = field === "service" ? "service" : field === "operation" || field === "name" ? "operation" : "value";
  if (what === "value" && field in FIELDS && !["model", "session", "user"].includes(field)) return [];
  const key = field.startsWith('"') ? field.slice(1, -1) : field;
  const query = { ...selection, what, prefix, limit: MOST, ...(what === "value" ? { key } : {}) };
  const values = await complete(query, signal);
  return values.flatMap((each) => {
    const written = writtenValue(each.value);
    return written === null ? [] : [{ text: String(each.value), insert: `${written} `, note: seen(each) }];
  });
}
