/** Builds: the list, one with its runs and graph, partitions and their lineage, jobs. */

import { get, type QueryOf } from "./client";

export interface BuildSummary {
  build_request_id: string;
  status: string;
  requested_partitions: string[];
  message: string;
  created_at: bigint;
  updated_at: bigint;
  ended_at: bigint | null;
  duration_ns: number | bigint | null;
  cancel_requested: boolean;
}

export interface BuildPage {
  builds: BuildSummary[];
  total: number;
}

export interface Activity {
  active_builds_count: number;
  total_builds_count: number;
  builds_by_status: Record<string, number>;
  partitions_by_status: Record<string, number>;
  recent_builds: BuildSummary[];
}

export interface JobRun {
  job_run_id: string;
  job_label: string;
  build_request_id: string;
  status: string;
  target_partitions: string[];
  /** When it was scheduled, began and ended. */
  first_at: bigint;
  started_at: bigint | null;
  ended_at: bigint | null;
  duration_ns: number | bigint | null;
}

export interface JobNode {
  id: number;
  job_label: string;
  /** planned, scheduled, running, completed, failed or cancelled. */
  state: string;
  inputs: string[];
  outputs: string[];
  job_run_id: string | null;
}

export interface JobGraph {
  nodes: JobNode[];
  edges: { source: number; target: number; partition_ref: string }[];
}

export interface BuildEvent {
  index: number;
  event_id: string;
  timestamp: bigint;
  build_request_id: string;
  event_type: string;
  [payload: string]: unknown;
}

export interface EventPage {
  events: BuildEvent[];
  next_index: number;
  has_more: boolean;
}

export interface PartitionState {
  partition_ref: string;
  status: string;
  updated_at: bigint;
  build_request_id: string | null;
  job_run_id: string | null;
  message: string;
  invalidated: boolean;
}

export interface Edge {
  output_ref: string;
  input_ref: string;
  job_run_id: string | null;
  build_request_id: string | null;
  planned: boolean;
}

export interface Lineage {
  partition_ref: string;
  partitions: string[];
  edges: Edge[];
  truncated: boolean;
}

export interface JobSummary {
  job_label: string;
  runs: number;
  completed: number;
  failed: number;
  cancelled: number;
  active: number;
  success_rate: number | null;
  retries: number;
  duration_p50_ns: number | bigint | null;
  duration_max_ns: number | bigint | null;
  last_run: JobRun | null;
}

export interface Comparison {
  first: BuildSummary;
  second: BuildSummary;
  slower_ns: number | bigint | null;
  partitions: { partition_ref: string; first: string | null; second: string | null }[];
  same_partitions: number;
  jobs: ComparedJob[];
}

export interface ComparedJob {
  job_label: string;
  first_runs: number;
  second_runs: number;
  first: JobRun | null;
  second: JobRun | null;
  slower_ns: number | bigint | null;
}

const as = <T>(answer: Promise<unknown>) => answer as Promise<T>;

export function listBuilds(query: QueryOf<"GET /api/v1/builds">, signal?: AbortSignal): Promise<BuildPage> {
  return as(get("/api/v1/builds", { query, signal }));
}

export function buildActivity(signal?: AbortSignal): Promise<Activity> {
  return as(get("/api/v1/builds/activity", { signal }));
}

/** One build; null if the log has none of this id. */
export function getBuild(id: string, signal?: AbortSignal): Promise<BuildSummary | null> {
  return as(get("/api/v1/builds/build", { query: { build_request_id: id }, signal }));
}

export function buildGraph(id: string, signal?: AbortSignal): Promise<JobGraph> {
  return as(get("/api/v1/builds/build/graph", { query: { build_request_id: id }, signal }));
}

/** The states of the partitions that a build touched, by their refs. */
export function buildPartitions(id: string, signal?: AbortSignal): Promise<Record<string, string>> {
  return as(get("/api/v1/builds/build/partitions", { query: { build_request_id: id }, signal }));
}

/** The newest runs, of a build or of a job. */
export function listRuns(query: QueryOf<"GET /api/v1/builds/runs">, signal?: AbortSignal): Promise<JobRun[]> {
  return as(get("/api/v1/builds/runs", { query, signal }));
}

export function listEvents(query: QueryOf<"GET /api/v1/builds/events">, signal?: AbortSignal): Promise<EventPage> {
  return as(get("/api/v1/builds/events", { query, signal }));
}

export function listPartitions(limit: number, signal?: AbortSignal): Promise<PartitionState[]> {
  return as(get("/api/v1/builds/partitions", { query: { limit }, signal }));
}

/** The state of a partition; null if no event names it. */
export function partitionState(ref: string, signal?: AbortSignal): Promise<PartitionState | null> {
  return as(get("/api/v1/builds/partitions/status", { query: { partition_ref: ref }, signal }));
}

export function lineage(query: QueryOf<"GET /api/v1/builds/lineage">, signal?: AbortSignal): Promise<Lineage> {
  return as(get("/api/v1/builds/lineage", { query, signal }));
}

export function listJobs(limit: number, signal?: AbortSignal): Promise<JobSummary[]> {
  return as(get("/api/v1/builds/jobs", { query: { limit }, signal }));
}

export function compareBuilds(first: string, second: string, signal?: AbortSignal): Promise<Comparison> {
  return as(get("/api/v1/builds/compare", { query: { first, second }, signal }));
}
