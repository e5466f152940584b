import { Badge, type Tone } from "./Badge";

const TONES: Record<string, Tone> = {
  COMPLETED: "ok",
  AVAILABLE: "ok",
  FAILED: "error",
  CANCELLED: "warn",
  EXECUTING: "running",
  RUNNING: "running",
  BUILDING: "running",
  PLANNING: "running",
};

const nameOf = (status: string) => status.toUpperCase().replace(/^(BUILD_REQUEST|PARTITION|JOB)_/, "");

/** Returns the status of a build, a job run or a partition as a word. */
export function statusWord(status: string): string {
  return nameOf(status).toLowerCase().replace(/_/g, " ");
}

export function statusTone(status: string): Tone {
  return TONES[nameOf(status)] ?? "neutral";
}

/** The status of a build, a job run or a partition, in the words of the log without its prefix. */
export function BuildStatus({ status }: { status: string }) {
  return <Badge tone={statusTone(status)}>{statusWord(status)}</Badge>;
}
