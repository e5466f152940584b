/** Jobs over all builds: success rate, durations, flakiness; and one of them over time. */

import { listJobs, type JobSummary } from "../../api/builds";
import { BUILD_EVENTS } from "../../api/changes";
import { useAnswer } from "../../api/useAnswer";
import { text, useAddress } from "../../app/address";
import { to } from "../../app/router";
import {
  Ago,
  Badge,
  BuildStatus,
  Count,
  Duration,
  EmptyState,
  PageHead,
  Panel,
  Shown,
  Table,
  TextField,
  type Column,
} from "../../components";
import { percent } from "../../format/numbers";
import { NoBuilds } from "../builds/NoBuilds";
import { JobPanel } from "./JobPanel";
import "../builds/builds.css";

const MOST = 5_000;

/** What each sortable column sorts by. */
const KEYS: Record<string, (job: JobSummary) => number | string> = {
  job: (job) => job.job_label,
  runs: (job) => job.runs,
  success: (job) => job.success_rate ?? -1,
  retries: (job) => job.retries,
  p50: (job) => Number(job.duration_p50_ns ?? -1),
  max: (job) => Number(job.duration_max_ns ?? -1),
  last: (job) => Number(job.last_run?.first_at ?? 0),
};

export default function JobsPage() {
  const [state, set] = useAddress({ q: text(), sort: text("success"), job: text() });
  const jobs = useAnswer((signal) => listJobs(MOST, signal), [], { follow: [BUILD_EVENTS] });
  return (
    <>
      <PageHead title="Jobs" />
      {state.job && (
        <JobPanel
          label={state.job}
          summary={jobs.data?.find((job) => job.job_label === state.job)}
          onClose={() => set({ job: "" }, { push: true })}
        />
      )}
      <Panel flush>
        <Shown of={jobs} empty={(found) => found.length === 0 && <NoBuilds />}>
          {(found) => {
            const rows = sorted(matching(found, state.q), state.sort);
            return (
              <>
                <div class="timeline-bar">
                  <TextField
                    label="Search"
                    hideLabel
                    type="search"
                    placeholder="Part of a label"
                    value={state.q}
                    onInput={(q) => set({ q })}
                  />
                </div>
                {rows.length ? (
                  <Table
                    label="Jobs"
                    columns={columns}
                    rows={rows}
                    rowKey={(job) => job.job_label}
                    sort={state.sort}
                    onSort={(sort) => set({ sort }, { push: true })}
                  />
                ) : (
                  <EmptyState title="No job matches">Search for a shorter part of its label.</EmptyState>
                )}
              </>
            );
          }}
        </Shown>
      </Panel>
    </>
  );
}

function matching(jobs: readonly JobSummary[], part: string): JobSummary[] {
  return jobs.filter((job) => job.job_label.toLowerCase().includes(part.trim().toLowerCase()));
}

function sorted(jobs: JobSummary[], sort: string): JobSummary[] {
  const key = KEYS[sort.replace(/^-/, "")] ?? KEYS["job"]!;
  const sign = sort.startsWith("-") ? -1 : 1;
  return jobs.sort((left, right) => {
    const [one, other] = [key(left), key(right)];
    return sign * (one < other ? -1 : one > other ? 1 : 0);
  });
}

const columns: Column<JobSummary>[] = [
  {
    id: "job",
    title: "Job",
    sortable: true,
    cell: (job) => (
      <a class="wraps" href={to("jobs", { job: job.job_label })}>
        {job.job_label}
      </a>
    ),
  },
  { id: "success", title: "Success", align: "right", sortable: true, cell: (job) => <Success job={job} /> },
  { id: "runs", title: "Runs", align: "right", sortable: true, cell: (job) => <Count value={job.runs} /> },
  {
    id: "retries",
    title: "Run again",
    align: "right",
    sortable: true,
    wide: true,
    cell: (job) => <Count value={job.retries} />,
  },
  {
    id: "p50",
    title: "Median",
    align: "right",
    sortable: true,
    wide: true,
    cell: (job) => <Duration ns={job.duration_p50_ns} />,
  },
  {
    id: "max",
    title: "Longest",
    align: "right",
    sortable: true,
    wide: true,
    cell: (job) => <Duration ns={job.duration_max_ns} />,
  },
  {
    id: "last",
    title: "Last run",
    align: "right",
    sortable: true,
    cell: (job) =>
      job.last_run && (
        <span class="compared">
          <BuildStatus status={job.last_run.status} />
          <Ago at={job.last_run.first_at} />
        </span>
      ),
  },
];

function Success({ job }: { job: JobSummary }) {
  if (job.success_rate === null) return <span class="nothing">–</span>;
  if (job.failed === 0) return <span class="number">{percent(job.success_rate)}</span>;
  return (
    <span class="compared">
      <Badge tone={job.success_rate < 0.5 ? "error" : "warn"}>{job.failed} failed</Badge>
      <span class="number">{percent(job.success_rate)}</span>
    </span>
  );
}
