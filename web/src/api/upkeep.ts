/** Upkeep: the tasks of the scheduler. */

import { get } from "./client";

export interface Task {
  task_name: string;
  [field: string]: unknown;
}

export function listTasks(signal?: AbortSignal): Promise<Task[]> {
  return get("/api/v1/tasks", { signal }) as Promise<unknown> as Promise<Task[]>;
}
