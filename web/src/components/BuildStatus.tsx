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

/** The status of a build, a job run or a partition, in the words of the log without its prefix. */
export function BuildStatus({ status }: { status: string }) {
  const name = status.replace(/^(BUILD_REQUEST|PARTITION|JOB)_/, "");
  return <Badge tone={TONES[name] ?? "neutral"}>{name.toLowerCase().replace(/_/g, " ")}</Badge>;
}
