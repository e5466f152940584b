/** Conversations with language models: sessions, messages, tokens over time. */

import { get, type QueryOf } from "./client";
import type { Json } from "./json";

export interface Session {
  session_id: string;
  users: string[];
  models: string[];
  traces: number;
  spans: number;
  calls: number;
  errors: number;
  input_tokens: number;
  output_tokens: number;
  cost: number | null;
  start_ns: bigint;
  end_ns: bigint;
}

export interface SessionPage {
  sessions: Session[];
  next_offset: number | null;
}

export interface MessagePart {
  /** text, reasoning, tool_call, tool_result, media or json; others may come. */
  type: string;
  text: string | null;
  id: string | null;
  name: string | null;
  value: Json;
  uri: string | null;
  media_type: string | null;
  /** How many characters were left out. */
  cut: number;
}

export interface Message {
  role: string;
  parts: MessagePart[];
  name: string | null;
  finish_reason: string | null;
}

export interface SpanMessages {
  span_id: string;
  parent_span_id: string | null;
  row: number;
  name: string;
  service: string;
  operation: string | null;
  is_error: boolean;
  start_ns: bigint;
  end_ns: bigint;
  model: string | null;
  provider: string | null;
  input_tokens: number | null;
  output_tokens: number | null;
  cost: number | null;
  session_id: string | null;
  user_id: string | null;
  input: Message[];
  output: Message[];
}

export interface TraceMessages {
  trace_id: string;
  spans: SpanMessages[];
  total: number;
  next_offset: number | null;
}

export interface UsagePoint {
  start: string | null;
  group: Record<string, string | null>;
  calls: number;
  errors: number;
  input_tokens: number;
  output_tokens: number;
  cost: number | null;
}

export function listSessions(
  query: QueryOf<"GET /api/v1/traces/sessions">,
  signal?: AbortSignal,
): Promise<SessionPage> {
  return get("/api/v1/traces/sessions", { query, signal }) as Promise<unknown> as Promise<SessionPage>;
}

export function usageOf(query: QueryOf<"GET /api/v1/traces/usage">, signal?: AbortSignal): Promise<UsagePoint[]> {
  return get("/api/v1/traces/usage", { query, signal }) as Promise<unknown> as Promise<UsagePoint[]>;
}

export function messagesOf(
  traceId: string,
  query: QueryOf<"GET /api/v1/traces/{trace_id}/messages">,
  signal?: AbortSignal,
): Promise<TraceMessages> {
  const path = { trace_id: traceId };
  return get("/api/v1/traces/{trace_id}/messages", {
    path,
    query,
    signal,
  }) as Promise<unknown> as Promise<TraceMessages>;
}

/** Writes a text as the language of searches has it. */
export function sessionFilter(id: string): string {
  return `session = ${JSON.stringify(id)}`;
}
