import { listEvents, type JobRun } from "../../api/builds";
import { BUILD_EVENTS } from "../../api/changes";
import { useAnswer } from "../../api/useAnswer";
import { to } from "../../app/router";
import { useKeys } from "../../app/keys";
import { BuildStatus, Button, Duration, KeyValue, Panel, Shown, Time } from "../../components";
import { lineOf, stateOf } from "./events";
import { EventTable } from "./EventsTab";

const MOST = 200;

interface Props {
  run: JobRun;
  live: boolean;
  onClose: () => void;
}

/** One run of a job: what it said last, its times, its partitions and its events. */
export function RunPanel({ run, live, onClose }: Props) {
  useKeys("Job run", [{ key: "Escape", about: "Close the job run", run: onClose }]);
  const events = useAnswer(
    (signal) => listEvents({ job_run_id: [run.job_run_id], limit: MOST }, signal),
    [run.job_run_id, run.status],
    { follow: live ? [BUILD_EVENTS] : undefined },
  );
  const said = events.data?.events.findLast((event) => stateOf(event) !== null && lineOf(event) !== "");
  return (
    <Panel
      title={
        <>
          {run.job_label} <BuildStatus status={run.status} />
        </>
      }
      actions={
        <>
          <a href={to("jobs", { job: run.job_label })}>All runs of this job</a>
          <Button kind="quiet" aria-label="Close the job run" onClick={onClose}>
            ×
          </Button>
        </>
      }
    >
      <KeyValue
        pairs={[
          ...(said ? [["Says", <strong class="wraps">{lineOf(said)}</strong>] as const] : []),
          ["Run", <code>{run.job_run_id}</code>],
          ["Scheduled", <Time at={run.first_at} digits={3} />],
          [
            "Began",
            run.started_at === null ? null : (
              <>
                <Time at={run.started_at} digits={3} />{" "}
                <span class="hint">
                  after <Duration ns={run.started_at - run.first_at} />
                </span>
              </>
            ),
          ],
          ["Ended", run.ended_at === null ? null : <Time at={run.ended_at} digits={3} />],
          ["Took", <Duration ns={run.duration_ns} />],
          [
            "Makes",
            <ul>
              {run.target_partitions.map((ref) => (
                <li key={ref}>
                  <a href={to("partitions", { ref })}>{ref}</a>
                </li>
              ))}
            </ul>,
          ],
        ]}
      />
      <details>
        <summary>Events of this run</summary>
        <Shown of={events}>{(found) => <EventTable events={found.events} />}</Shown>
      </details>
    </Panel>
  );
}
