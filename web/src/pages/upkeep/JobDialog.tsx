import { useEffect, useRef, useState } from "preact/hooks";
import { asError, isAbort, type ApiError } from "../../api/errors";
import { may } from "../../api/session";
import { runJob, type JobName, type JobReport } from "../../api/tables";
import type { TableUpkeep } from "../../api/upkeep";
import { Badge, Button, Dialog, ErrorBox, Progress, Select } from "../../components";
import { bytes, counted, duration } from "../../format/numbers";
import { planned, summary } from "./reports";

const ABOUT: Record<JobName, string> = {
  fold: "Writes the staged changes into the base of the table, so that every reader of Delta sees them.",
  compact: "Merges small files into larger ones, which are read faster.",
  vacuum: "Deletes files that no kept version needs. Older versions cannot be read afterwards.",
};

interface Props {
  job: JobName;
  table: string;
  upkeep: TableUpkeep | undefined;
  onJob: (job: JobName) => void;
  onClose: () => void;
}

/** A job on a table: first what it would do, then its progress, then what it did. */
export function JobDialog({ job, table, upkeep, onJob, onClose }: Props) {
  const [plan, setPlan] = useState<JobReport | undefined>();
  const [error, setError] = useState<ApiError | undefined>();
  const [progress, setProgress] = useState<{ step: string; share: number } | undefined>();
  const [result, setResult] = useState<JobReport | undefined>();
  const control = useRef<AbortController | undefined>(undefined);
  const needed = job === "fold" ? "write" : "admin";
  useEffect(() => {
    if (job === "fold") return;
    const asked = new AbortController();
    runJob(table, job, { dryRun: true }, () => {}, asked.signal).then(setPlan, (thrown: unknown) => {
      if (!isAbort(thrown)) setError(asError(thrown));
    });
    return () => asked.abort();
  }, [job, table]);
  const start = async () => {
    control.current = new AbortController();
    setError(undefined);
    setProgress({ step: "start", share: 0 });
    try {
      const wanted = (step: string, share: number) => setProgress({ step, share });
      setResult(await runJob(table, job, {}, wanted, control.current.signal));
    } catch (thrown) {
      if (!isAbort(thrown)) setError(asError(thrown));
    } finally {
      setProgress(undefined);
    }
  };
  const because = !may(needed, table)
    ? `Your token needs ${needed} for this`
    : job !== "fold" && !plan
      ? "Wait for what it would do"
      : undefined;
  const actions = progress ? (
    <Button onClick={() => control.current?.abort()}>Stop it</Button>
  ) : result ? (
    <Button kind="primary" onClick={onClose}>
      Close
    </Button>
  ) : (
    <>
      <Button onClick={onClose}>Cancel</Button>
      <Button kind="primary" because={because} onClick={() => void start()}>
        {job[0]!.toUpperCase() + job.slice(1)} now
      </Button>
    </>
  );
  return (
    <Dialog title={`A job on ${table}`} onClose={() => !progress && onClose()} actions={actions}>
      <div class="job">
        <Select
          label="Job"
          value={job}
          onChange={onJob}
          disabled={progress !== undefined}
          options={[
            ["fold", "Fold"],
            ["compact", "Compact"],
            ["vacuum", "Vacuum"],
          ]}
        />
        <p class="hint">{ABOUT[job]}</p>
        {!result && (
          <section aria-label="What it would do">
            <h3>It would</h3>
            <Plan job={job} plan={plan} upkeep={upkeep} failed={error !== undefined} />
          </section>
        )}
        {progress && <Progress share={progress.share} label={progress.step} />}
        {error && <ErrorBox error={error} />}
        {result && (
          <p>
            <Badge tone="ok">done</Badge> {summary(job, result)}
          </p>
        )}
      </div>
    </Dialog>
  );
}

interface PlanProps {
  job: JobName;
  plan: JobReport | undefined;
  upkeep: TableUpkeep | undefined;
  failed: boolean;
}

function Plan({ job, plan, upkeep, failed }: PlanProps) {
  if (job === "fold")
    return (
      <p>
        {upkeep?.staged_rows
          ? `fold ${counted(upkeep.staged_rows, "row")} of ${bytes(upkeep.staged_bytes)}, the oldest of which waits for ${duration(upkeep.lag_s * 1e9)}`
          : "find nothing to fold"}
      </p>
    );
  if (!plan) return <p class="hint">{failed ? "not known" : "Dry run…"}</p>;
  return (
    <ul class="plan">
      {planned(job, plan).map((line) => (
        <li key={line}>{line}</li>
      ))}
    </ul>
  );
}
