/** One build: a timeline of its job runs, its job graph, its partitions and its events. Live while it runs. */

import { buildGraph, buildPartitions, getBuild, listRuns, type BuildSummary } from "../../api/builds";
import { BUILD_EVENTS } from "../../api/changes";
import { useAnswer } from "../../api/useAnswer";
import { choice, large, text, useAddress } from "../../app/address";
import type { PageProps } from "../../app/pages";
import { to } from "../../app/router";
import { useTitle } from "../../app/title";
import {
  Badge,
  BuildStatus,
  CopyButton,
  Duration,
  EmptyState,
  PageHead,
  Panel,
  Shown,
  Tabs,
  Time,
} from "../../components";
import { nowNs } from "../../format/times";
import { BuildGraphTab } from "./BuildGraphTab";
import { EventsTab } from "./EventsTab";
import { PartitionsTab } from "./PartitionsTab";
import { RunPanel } from "./RunPanel";
import { Timeline } from "./Timeline";
import "./builds.css";

const VIEWS = ["timeline", "graph", "partitions", "events"] as const;
const MOST_RUNS = 20_000;

export default function BuildPage({ params }: PageProps) {
  const id = params["buildId"]!;
  useTitle(id);
  const [state, set] = useAddress({
    view: choice(VIEWS),
    run: text(),
    from: large(),
    until: large(),
    order: choice(["start", "longest"]),
    kind: text(),
  });
  const build = useAnswer((signal) => getBuild(id, signal), [id], { follow: [BUILD_EVENTS] });
  const follow = build.data && !build.data.ended_at ? [BUILD_EVENTS] : undefined;
  const ended = String(build.data?.ended_at ?? "");
  const runs = useAnswer((signal) => listRuns({ build_request_id: id, limit: MOST_RUNS }, signal), [id, ended], {
    follow,
  });
  const graph = useAnswer((signal) => buildGraph(id, signal), [id, ended], { follow, when: state.view === "graph" });
  const partitions = useAnswer((signal) => buildPartitions(id, signal), [id, ended], {
    follow,
    when: state.view === "partitions",
  });
  if (build.data === null) return <Missing id={id} />;
  const chosen = runs.data?.find((run) => run.job_run_id === state.run);
  return (
    <>
      <PageHead
        title={id}
        above={<a href={to("builds")}>Builds</a>}
        actions={
          <>
            <CopyButton text={id} what="build id" />
            <a class="button" href={to("builds", "compare", { a: id })}>
              Compare with…
            </a>
          </>
        }
      >
        {build.data && <Facts build={build.data} />}
      </PageHead>
      {build.error && <Shown of={build}>{() => null}</Shown>}
      <Tabs
        label="Views of the build"
        value={state.view}
        onChange={(view) => set({ view }, { push: true })}
        tabs={VIEWS.map((view) => ({ value: view, label: view[0]!.toUpperCase() + view.slice(1) }))}
      >
        {chosen && <RunPanel run={chosen} live={!chosen.ended_at} onClose={() => set({ run: "" }, { push: true })} />}
        {state.run && runs.data && !chosen && (
          <p class="hint gone">
            The build has no run <code>{state.run}</code>.
          </p>
        )}
        {state.view === "timeline" && (
          <Panel flush>
            <Shown of={runs} empty={(found) => found.length === 0 && <NoRuns ended={!!build.data?.ended_at} />}>
              {(found) => (
                <Timeline
                  runs={found}
                  until={build.data?.ended_at ?? null}
                  from={state.from}
                  to={state.until}
                  order={state.order}
                  chosen={state.run}
                  onZoom={(from, until) => set({ from, until }, { push: true })}
                  onOrder={(order) => set({ order })}
                  onOpen={(run) => set({ run }, { push: true })}
                />
              )}
            </Shown>
          </Panel>
        )}
        {state.view === "graph" && <BuildGraphTab graph={graph} buildId={id} run={state.run} />}
        {state.view === "partitions" && <PartitionsTab partitions={partitions} />}
        {state.view === "events" && (
          <EventsTab buildId={id} kind={state.kind} onKind={(kind) => set({ kind }, { push: true })} follow={follow} />
        )}
      </Tabs>
    </>
  );
}

function Facts({ build }: { build: BuildSummary }) {
  const asked = build.requested_partitions;
  return (
    <div class="facts">
      <BuildStatus status={build.status} />
      {!build.ended_at && (
        <Badge tone="running" title="The page changes as the build does">
          live
        </Badge>
      )}
      {build.cancel_requested && !build.ended_at && <Badge tone="warn">cancel requested</Badge>}
      <span>
        began <Time at={build.created_at} />
      </span>
      <span>
        {build.ended_at ? "took " : "for "}
        <Duration ns={build.ended_at ? build.duration_ns : nowNs() - build.created_at} />
      </span>
      {build.message && <span class="said">{build.message}</span>}
      <span class="wraps">
        asked for{" "}
        {asked.slice(0, 4).map((ref, index) => (
          <>
            {index > 0 && ", "}
            <a href={to("partitions", { ref })}>{ref}</a>
          </>
        ))}
        {asked.length > 4 && ` and ${asked.length - 4} more`}
      </span>
    </div>
  );
}

function NoRuns({ ended }: { ended: boolean }) {
  return (
    <EmptyState title={ended ? "The build ended without a job run" : "No job has been scheduled yet"}>
      <p>{ended ? "Its events tell why." : "This page shows the runs as they come."}</p>
    </EmptyState>
  );
}

function Missing({ id }: { id: string }) {
  return (
    <>
      <PageHead title="Build" above={<a href={to("builds")}>Builds</a>} />
      <EmptyState title="There is no such build">
        <p>
          The log has no build <code>{id}</code>: it may have been pruned, or the id is mistyped.{" "}
          <a href={to("builds")}>Show all builds</a>.
        </p>
      </EmptyState>
    </>
  );
}
