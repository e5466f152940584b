import type { JobRun } from "../../api/builds";

export interface Flakiness {
  /** Pairs of runs that ended one after the other, and in how many of them the result changed. */
  pairs: number;
  changes: number;
  share: number;
}

/** A job that always fails is broken; one whose result changes from run to run is flaky. Runs come newest first. */
export function flakiness(runs: readonly JobRun[]): Flakiness {
  const results = runs.filter((run) => /COMPLETED|FAILED/.test(run.status)).map((run) => run.status);
  const pairs = Math.max(0, results.length - 1);
  const changes = results.filter((result, index) => index > 0 && result !== results[index - 1]).length;
  return { pairs, changes, share: pairs ? changes / pairs : 0 };
}
