/** Builds: the list, and what goes on now. */

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

export function listBuilds(query: QueryOf<"GET /api/v1/builds">, signal?: AbortSignal): Promise<BuildPage> {
  return get("/api/v1/builds", { query, signal }) as Promise<unknown> as Promise<BuildPage>;
}

export function buildActivity(signal?: AbortSignal): Promise<Activity> {
  return get("/api/v1/builds/activity", { signal }) as Promise<unknown> as Promise<Activity>;
}
