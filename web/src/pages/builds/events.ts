/** What an event of the log says, in a line. */

import type { BuildEvent } from "../../api/builds";
import { statusWord } from "../../components/BuildStatus";
import { counted } from "../../format/numbers";

export const KINDS = [
  "build_request",
  "job",
  "partition",
  "job_graph",
  "delegation",
  "partition_invalidation",
  "task_cancel",
  "build_cancel",
] as const;

type Payload = Record<string, unknown>;

export function payloadOf(event: BuildEvent): Payload {
  return (event[`${event.event_type}_event`] ?? {}) as Payload;
}

/** What the event is about: a job, a partition, or the build. */
export function subjectOf(event: BuildEvent): string {
  const payload = payloadOf(event);
  return String(payload["job_label"] ?? payload["partition_ref"] ?? payload["job_run_id"] ?? "");
}

/** The state that it tells, or null if it tells none. */
export function stateOf(event: BuildEvent): string | null {
  const name = payloadOf(event)["status_name"];
  return typeof name === "string" ? name : null;
}

export function lineOf(event: BuildEvent): string {
  const payload = payloadOf(event);
  const message = String(payload["message"] ?? payload["reason"] ?? "");
  const graph = payload["job_graph"] as { nodes?: unknown[] } | undefined;
  if (graph?.nodes) return `${counted(graph.nodes.length, "job")} planned`;
  if (message) return message;
  return stateOf(event) === null ? statusWord(event.event_type) : "";
}
