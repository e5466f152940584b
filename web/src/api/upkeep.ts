/** Upkeep: the tasks of the scheduler. */

import { get } from "./client";
import { parseJson } from "./json";

export interface Task {
  /** `fold:shop.sales.orders` */
  task_name: string;
  status: string;
  owner: string | null;
  claimed_at: string | null;
  completed_at: string | null;
  next_run_at: string | null;
  failures: number;
  /** JSON of what the last run reported. */
  last_result: string | null;
}

export function listTasks(signal?: AbortSignal): Promise<Task[]> {
  return get("/api/v1/tasks", { signal }) as Promise<unknown> as Promise<Task[]>;
}

/** Returns what the last run of a task reported. */
export function resultOf(task: Task): Record<string, unknown> {
  try {
    return (parseJson(task.last_result ?? "{}") ?? {}) as Record<string, unknown>;
  } catch {
    return {};
  }
}
