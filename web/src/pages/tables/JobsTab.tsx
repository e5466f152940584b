/** The jobs on a table: what each would do first, then the job itself with its progress. */

import { useRef, useState } from "preact/hooks";
import { asError, isAbort, type ApiError } from "../../api/errors";
import { may } from "../../api/session";
import { runJob, type JobName, type JobReport, type TableDescription } from "../../api/tables";
import { Button, ErrorBox, KeyValue, Panel, Progress, toast } from "../../components";
import { bytes, count } from "../../format/numbers";

interface Job {
  name: JobName;
  title: string;
  about: string;
  needs: "write" | "admin";
  hasDryRun: boolean;
}

const JOBS: Job[] = [
  {
    name: "fold",
    title: "Fold",
    about: "Writes the staged changes into the base as one version. Queries see the same rows before and after.",
    needs: "write",
    hasDryRun: false,
  },
  {
    name: "compact",
    title: "Compact",
    about: "Folds, then merges small files into large ones that are sorted, so that queries read less.",
    needs: "admin",
    hasDryRun: true,
  },
  {
    name: "vacuum",
    title: "Vacuum",
    about: "Deletes files that no version within the retention needs. Older versions can then not be read any more.",
    needs: "admin",
    hasDryRun: true,
  },
];

export function JobsTab({ table, done }: { table: TableDescription; done: () => void }) {
  return (
    <div class="jobs">
      {JOBS.map((job) => (
        <JobPanel key={job.name} job={job} table={table} done={done} />
      ))}
    </div>
  );
}

interface Running {
  dryRun: boolean;
  step: string;
  share: number | undefined;
}

function JobPanel({ job, table, done }: { job: Job; table: TableDescription; done: () => void }) {
  const [running, setRunning] = useState<Running | null>(null);
  const [rehearsed, setRehearsed] = useState<JobReport | null>(null);
  const [report, setReport] = useState<JobReport | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const control = useRef<AbortController | null>(null);
  const start = async (dryRun: boolean) => {
    control.current = new AbortController();
    setError(null);
    setReport(null);
    setRunning({ dryRun, step: dryRun ? "looking" : "starting", share: undefined });
    try {
      const found = await runJob(
        table.name,
        job.name,
        { dryRun },
        (step, share) => setRunning({ dryRun, step, share }),
        control.current.signal,
      );
      if (dryRun) setRehearsed(found);
      else {
        setReport(found);
        setRehearsed(null);
        toast(`${job.title} of ${table.name} is done`);
        done();
      }
    } catch (thrown) {
      if (!isAbort(thrown)) setError(asError(thrown));
    } finally {
      setRunning(null);
    }
  };
  const because = may(job.needs, table.name) ? undefined : `Your token has no right to ${job.needs} this table`;
  const mustLook = job.hasDryRun && !rehearsed;
  return (
    <Panel title={job.title}>
      <p class="job-about">{job.about}</p>
      <div class="job-buttons">
        {job.hasDryRun && (
          <Button because={because} disabled={running !== null} onClick={() => void start(true)}>
            Dry run
          </Button>
        )}
        <Button
          kind="primary"
          because={because ?? (mustLook ? "See first what it would do: start a dry run" : undefined)}
          disabled={running !== null}
          onClick={() => void start(false)}
        >
          {job.title} now
        </Button>
        {running && (
          <Button kind="quiet" onClick={() => control.current?.abort()}>
            Stop
          </Button>
        )}
      </div>
      {running && (
        <Progress share={running.share} label={`${running.dryRun ? "Dry run" : job.title}: ${running.step}`} />
      )}
      {error && <ErrorBox error={error} />}
      {rehearsed && !running && (
        <div class="job-report" role="status">
          <h3>It would</h3>
          <Report report={rehearsed} />
        </div>
      )}
      {report && (
        <div class="job-report" role="status">
          <h3>Done</h3>
          <Report report={report} />
        </div>
      )}
    </Panel>
  );
}

function Report({ report }: { report: JobReport }) {
  const plan = (report.plan ?? report.files) as unknown;
  const lines = Array.isArray(plan) ? (plan as string[]) : [];
  const pairs = Object.entries(report)
    .filter(([, value]) => typeof value === "number" || typeof value === "bigint" || typeof value === "string")
    .filter(([name, value]) => value !== "" && Number(value) !== 0 && name !== "skipped")
    .map(([name, value]) => [name.replace(/_/g, " "), valueText(name, value as number)] as const);
  return (
    <>
      {lines.length > 0 && (
        <ul class="plan-lines">
          {lines.slice(0, 20).map((line, place) => (
            <li key={place}>{line}</li>
          ))}
          {lines.length > 20 && <li class="hint">and {count(lines.length - 20)} more</li>}
        </ul>
      )}
      {pairs.length + lines.length === 0 ? <p>Nothing needs to be done.</p> : <KeyValue pairs={pairs} />}
    </>
  );
}

function valueText(name: string, value: number | bigint | string): string {
  if (typeof value === "string") return value;
  if (name.includes("bytes")) return bytes(value);
  if (name === "seconds" || name.endsWith("_s")) return `${Number(value)} s`;
  return Number.isInteger(Number(value)) ? count(value) : Number(value).toFixed(2);
}
