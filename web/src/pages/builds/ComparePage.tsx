/** Two builds side by side: what each took, and the jobs and partitions that differ. */

import { compareBuilds, listBuilds, type ComparedJob, type Comparison } from "../../api/builds";
import { useAnswer } from "../../api/useAnswer";
import { choice, text, useAddress } from "../../app/address";
import { to } from "../../app/router";
import {
  Badge,
  BuildStatus,
  Button,
  Duration,
  EmptyState,
  Figure,
  PageHead,
  Panel,
  Select,
  Shown,
  Table,
  TextField,
  type Column,
} from "../../components";
import { counted, duration } from "../../format/numbers";
import "./builds.css";

const OFFERED = 200;

export default function ComparePage() {
  const [state, set] = useAddress({ a: text(), b: text(), order: choice(["difference", "job"]) });
  const known = useAnswer((signal) => listBuilds({ limit: OFFERED }, signal), []);
  const names = (known.data?.builds ?? []).map((build) => build.build_request_id);
  const both = state.a !== "" && state.b !== "";
  const found = useAnswer((signal) => compareBuilds(state.a, state.b, signal), [state.a, state.b], { when: both });
  return (
    <>
      <PageHead title="Two builds" above={<a href={to("builds")}>Builds</a>} />
      <Panel>
        <div class="form-row">
          <TextField label="First build" value={state.a} suggestions={names} onInput={(a) => set({ a })} />
          <TextField label="Second build" value={state.b} suggestions={names} onInput={(b) => set({ b })} />
          <Button onClick={() => set({ a: state.b, b: state.a }, { push: true })}>Swap</Button>
          <Select
            label="Order of jobs"
            value={state.order}
            onChange={(order) => set({ order })}
            options={[
              ["difference", "Largest difference first"],
              ["job", "By name"],
            ]}
          />
        </div>
      </Panel>
      {both ? (
        <Shown of={found}>{(comparison) => <Compared comparison={comparison} order={state.order} />}</Shown>
      ) : (
        <EmptyState title="Choose two builds">
          <p>The fields above offer the newest; any id of the log will do.</p>
        </EmptyState>
      )}
    </>
  );
}

function Compared({ comparison, order }: { comparison: Comparison; order: "difference" | "job" }) {
  const { first, second } = comparison;
  const size = (job: ComparedJob) => (job.slower_ns === null ? Infinity : Math.abs(Number(job.slower_ns)));
  const jobs = order === "job" ? comparison.jobs : [...comparison.jobs].sort((a, b) => size(b) - size(a));
  return (
    <>
      <div class="figures">
        {[first, second].map((build, index) => (
          <Figure
            key={index}
            label={index ? "Second" : "First"}
            value={build.ended_at ? <Duration ns={build.duration_ns} /> : "runs"}
            note={
              <>
                <BuildStatus status={build.status} /> {build.build_request_id}
              </>
            }
            href={to("builds", build.build_request_id)}
          />
        ))}
        <Figure label="Second took" value={<Slower ns={comparison.slower_ns} />} />
        <Figure
          label="Partitions"
          value={comparison.partitions.length}
          note={`in other states; ${comparison.same_partitions} in the same`}
        />
      </div>
      <Panel title="Jobs" flush>
        <Table label="Jobs" columns={columns} rows={jobs} rowKey={(job) => job.job_label} />
      </Panel>
      {comparison.partitions.length > 0 && (
        <Panel
          title={counted(comparison.partitions.length, "partition in another state", "partitions in other states")}
          flush
        >
          <Table
            label="Partitions in other states"
            columns={partitionColumns}
            rows={comparison.partitions}
            rowKey={(each) => each.partition_ref}
          />
        </Panel>
      )}
    </>
  );
}

function Slower({ ns }: { ns: number | bigint | null }) {
  if (ns === null) return <span class="nothing">–</span>;
  const value = Number(ns);
  if (value === 0) return <>the same</>;
  return (
    <span class="number">
      {duration(Math.abs(value))} {value > 0 ? "longer" : "less"}
    </span>
  );
}

const columns: Column<ComparedJob>[] = [
  { id: "job", title: "Job", cell: (job) => <a href={to("jobs", { job: job.job_label })}>{job.job_label}</a> },
  { id: "first", title: "First", cell: (job) => <Run run={job.first} runs={job.first_runs} /> },
  { id: "second", title: "Second", cell: (job) => <Run run={job.second} runs={job.second_runs} /> },
  { id: "slower", title: "Second took", align: "right", cell: (job) => <Slower ns={job.slower_ns} /> },
];

function Run({ run, runs }: { run: ComparedJob["first"]; runs: number }) {
  if (!run) return <Badge>no run</Badge>;
  return (
    <span class="compared">
      <BuildStatus status={run.status} /> <Duration ns={run.duration_ns} />
      {runs > 1 && <span class="hint">{runs} runs</span>}
    </span>
  );
}

const partitionColumns: Column<Comparison["partitions"][number]>[] = [
  {
    id: "ref",
    title: "Partition",
    cell: (each) => <a href={to("partitions", { ref: each.partition_ref })}>{each.partition_ref}</a>,
  },
  {
    id: "first",
    title: "First",
    cell: (each) => (each.first ? <BuildStatus status={each.first} /> : <Badge>not there</Badge>),
  },
  {
    id: "second",
    title: "Second",
    cell: (each) => (each.second ? <BuildStatus status={each.second} /> : <Badge>not there</Badge>),
  },
];
