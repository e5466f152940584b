import { useMemo } from "preact/hooks";
import { listRuns, type JobRun, type JobSummary } from "../../api/builds";
import { BUILD_EVENTS } from "../../api/changes";
import { useAnswer } from "../../api/useAnswer";
import { to } from "../../app/router";
import {
  Ago,
  BuildStatus,
  Button,
  Duration,
  EmptyState,
  Figure,
  Panel,
  Shown,
  Table,
  TimeChart,
  type Column,
} from "../../components";
import { count, digits, duration, percent } from "../../format/numbers";
import { flakiness } from "./flakiness";

const MOST_RUNS = 500;
const MOST_ROWS = 50;

interface Props {
  label: string;
  summary: JobSummary | undefined;
  onClose: () => void;
}

/** One job over time: how long its runs took, which failed, and whether failures come and go. */
export function JobPanel({ label, summary, onClose }: Props) {
  const runs = useAnswer((signal) => listRuns({ job_label: label, limit: MOST_RUNS }, signal), [label], {
    follow: [BUILD_EVENTS],
  });
  return (
    <Panel
      title={<span class="wraps">{label}</span>}
      actions={
        <Button kind="quiet" aria-label="Close the job" onClick={onClose}>
          ×
        </Button>
      }
    >
      <Shown of={runs} empty={(found) => found.length === 0 && <NoRuns />}>
        {(found) => (
          <>
            <Figures runs={found} summary={summary} />
            <Chart runs={found} />
            <Table
              label="Runs"
              columns={columns}
              rows={found.slice(0, MOST_ROWS)}
              rowKey={(run) => `${run.build_request_id} ${run.job_run_id}`}
            />
          </>
        )}
      </Shown>
    </Panel>
  );
}

function NoRuns() {
  return <EmptyState title="The log has no run of this job">Choose a job of the list below.</EmptyState>;
}

function Figures({ runs, summary }: { runs: readonly JobRun[]; summary: JobSummary | undefined }) {
  const flaky = useMemo(() => flakiness(runs), [runs]);
  return (
    <div class="figures">
      <Figure
        label="Success"
        value={summary?.success_rate == null ? "–" : percent(summary.success_rate)}
        note={summary && `${count(summary.failed)} of ${count(summary.runs)} runs failed`}
        tone={summary?.failed ? "warn" : undefined}
      />
      <Figure
        label="Flakiness"
        value={flaky.pairs ? percent(flaky.share) : "–"}
        note={`result changed between ${flaky.changes} of ${flaky.pairs} runs in a row`}
      />
      <Figure label="Median" value={<Duration ns={summary?.duration_p50_ns} />} />
      <Figure label="Longest" value={<Duration ns={summary?.duration_max_ns} />} />
    </div>
  );
}

/** Short enough for an axis. */
function written(seconds: number): string {
  if (seconds >= 3_600) return `${digits(seconds / 3_600)} h`;
  return seconds >= 60 ? `${digits(seconds / 60)} min` : duration(seconds * 1e9);
}

function Chart({ runs }: { runs: readonly JobRun[] }) {
  const { times, series } = useMemo(() => {
    const ended = runs.filter((run) => run.duration_ns !== null).toReversed();
    const seconds = (run: JobRun) => Number(run.duration_ns) / 1e9;
    const bad = (run: JobRun) => /FAILED|CANCELLED/.test(run.status);
    return {
      times: ended.map((run) => Number(run.first_at / 1_000_000n) / 1000),
      series: [
        { label: "Completed", values: ended.map((run) => (bad(run) ? null : seconds(run))), colour: "accent" as const },
        {
          label: "Failed or cancelled",
          values: ended.map((run) => (bad(run) ? seconds(run) : null)),
          colour: "error" as const,
          bars: true,
        },
      ],
    };
  }, [runs]);
  if (times.length < 2) return null;
  return <TimeChart label="Duration of each run" times={times} series={series} format={written} height={150} />;
}

const columns: Column<JobRun>[] = [
  {
    id: "build",
    title: "In build",
    cell: (run) => (
      <a class="wraps" href={to("builds", run.build_request_id, { run: run.job_run_id })}>
        {run.build_request_id}
      </a>
    ),
  },
  { id: "state", title: "State", cell: (run) => <BuildStatus status={run.status} /> },
  { id: "took", title: "Took", align: "right", cell: (run) => <Duration ns={run.duration_ns} /> },
  { id: "began", title: "Scheduled", align: "right", cell: (run) => <Ago at={run.first_at} /> },
];
