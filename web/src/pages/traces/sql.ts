/** A search as SQL over the spans, to go on from. What has no short form in SQL is left as a comment. */

import { boundsOf } from "../../app/range";
import { TOKEN } from "./filter";
import { readDuration, type SearchState } from "./search";

const COLUMNS: Record<string, string> = {
  service: "service_name",
  operation: "span_name",
  name: "span_name",
  status_message: "status_message",
  model: "model",
  provider: "provider",
  session: "session_id",
  user: "user_id",
  input_tokens: "input_tokens",
  output_tokens: "output_tokens",
};
const STATUSES = ["unset", "ok", "error"];
const ORDER_BY: Record<SearchState["order"], string> = {
  newest: "min(start_ns) DESC",
  oldest: "min(start_ns)",
  longest: "duration_ns DESC",
  shortest: "duration_ns",
  most_spans: "spans DESC",
  most_errors: "errors DESC",
};

export function literal(text: string): string {
  return `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
}

/** Returns one comparison as SQL; null if it has no short form. */
function comparison(field: string, operator: string, value: string): string | null {
  const text = /^["']/.test(value) ? readText(value) : null;
  if (field === "duration") {
    const ms = readDuration(value);
    return ms && /^[<>]?=?$/.test(operator) ? `duration_ns ${operator} ${Math.round(ms * 1e6)}` : null;
  }
  if (field === "status" && operator === "=" && STATUSES.includes(value))
    return `status_code = ${STATUSES.indexOf(value)}`;
  if (field === "kind" && operator === "=" && /^\w+$/.test(value)) return `span_kind = '${value.toUpperCase()}'`;
  const column = COLUMNS[field];
  if (column) {
    const written = text !== null ? literal(text) : /^\d+$/.test(value) ? value : null;
    if (written === null) return null;
    if (operator === "contains") return `contains(${column}, ${written})`;
    return /^([<>]=?|!?=)$/.test(operator) ? `${column} ${operator} ${written}` : null;
  }
  const [, level, key] = /^(?:(span|resource)\.)?(.+)$/.exec(field.replace(/^"(.*)"$/, "$1")) ?? [];
  if (operator !== "=" || key === undefined || /^(event|link|scope)\./.test(field) || key.includes('"')) return null;
  const json = text !== null ? JSON.stringify(text) : value;
  const onSpan = `match_attr(search_blob, ${literal(key)}, ${literal(text ?? value)})`;
  const onResource = `resource_attributes[${literal(key)}] = ${literal(json)}`;
  return level === "span" ? onSpan : level === "resource" ? onResource : `(${onSpan} OR ${onResource})`;
}

function readText(value: string): string | null {
  try {
    return JSON.parse(value.startsWith("'") ? `"${value.slice(1, -1).replaceAll('"', '\\"')}"` : value) as string;
  } catch {
    return null;
  }
}

/** Returns a filter of comparisons that are joined by `and` as conditions; null if it is any other. */
export function conditionsOf(filter: string): string[] | null {
  const tokens = [...filter.matchAll(TOKEN)].map((match) => match[0]);
  const found: string[] = [];
  for (let at = 0; at < tokens.length;) {
    const field = tokens[at]!;
    const next = tokens[at + 1]?.toLowerCase();
    if (/^(not|or|and)$/i.test(field) || /^[(),]$/.test(field)) return null;
    let condition: string | null;
    if ((field === "error" || field === "root") && (next === undefined || next === "and")) {
      condition = field === "error" ? "status_code = 2" : "parent_span_id IS NULL";
      at += 1;
    } else {
      condition = next === undefined || tokens[at + 2] === undefined ? null : comparison(field, next, tokens[at + 2]!);
      at += 3;
    }
    if (condition === null) return null;
    found.push(condition);
    if (at < tokens.length && tokens[at++]!.toLowerCase() !== "and") return null;
  }
  return found;
}

/** Returns the SQL of a search: its traces, with the columns that the list shows. */
export function sqlOf(state: SearchState, now: bigint): string {
  const { start, end } = boundsOf(state, now);
  const [min, max] = [readDuration(state.min), readDuration(state.max)].map((ms) => ms && Math.round(ms * 1e6));
  const ofSpan = state.of === "span";
  const filter = conditionsOf(state.q);
  const spans = [
    start !== null && `start_ns >= ${start}`,
    end !== null && `start_ns < ${end}`,
    state.service && `service_name = ${literal(state.service)}`,
    state.operation && `span_name = ${literal(state.operation)}`,
    ofSpan && min && `duration_ns >= ${min}`,
    ofSpan && max && `duration_ns <= ${max}`,
    ...(filter ?? []),
  ].filter(Boolean);
  const traces = [
    state.errors && "count_if(status_code = 2) > 0",
    !ofSpan && min && `max(end_ns) - min(start_ns) >= ${min}`,
    !ofSpan && max && `max(end_ns) - min(start_ns) <= ${max}`,
  ].filter(Boolean);
  const within = spans.length
    ? `\nWHERE trace_id IN (\n  SELECT trace_id FROM crannog.traces.spans\n  WHERE ${spans.join("\n    AND ")}\n)`
    : "";
  const left =
    filter === null ? `-- Add this condition, which has no short form: ${state.q.replace(/\s+/g, " ")}\n` : "";
  return `${left}SELECT trace_id, min(start_time) AS start_time,
  max(end_ns) - min(start_ns) AS duration_ns, count(*) AS spans, count_if(status_code = 2) AS errors
FROM crannog.traces.spans${within}
GROUP BY trace_id${traces.length ? `\nHAVING ${traces.join(" AND ")}` : ""}
ORDER BY ${ORDER_BY[state.order]}
LIMIT ${state.limit}`;
}
