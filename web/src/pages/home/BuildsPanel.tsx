import type { Activity, BuildSummary } from "../../api/builds";
import type { Answered } from "../../api/useAnswer";
import { to } from "../../app/router";
import { Ago, Duration, EmptyState, Panel, Shown, Table, type Column } from "../../components";
import { BuildStatus } from "../../components/BuildStatus";

const columns: Column<BuildSummary>[] = [
  {
    id: "build",
    title: "Build",
    cell: (build) => <a href={to("builds", build.build_request_id)}>{build.build_request_id}</a>,
  },
  { id: "status", title: "Status", cell: (build) => <BuildStatus status={build.status} /> },
  { id: "duration", title: "Took", align: "right", wide: true, cell: (build) => <Duration ns={build.duration_ns} /> },
  { id: "updated", title: "Changed", align: "right", cell: (build) => <Ago at={build.updated_at} /> },
];

export function BuildsPanel({ activity }: { activity: Answered<Activity> }) {
  return (
    <Panel title="Latest builds" flush actions={<a href={to("builds")}>All builds</a>}>
      <Shown of={activity} empty={(found) => found.total_builds_count === 0 && <NoBuilds />}>
        {(found) => (
          <Table
            label="Latest builds"
            columns={columns}
            rows={found.recent_builds}
            rowKey={(build) => build.build_request_id}
          />
        )}
      </Shown>
    </Panel>
  );
}

function NoBuilds() {
  return (
    <EmptyState title="There are no builds yet">
      <p>An orchestrator writes what happens in its builds to this server:</p>
      <pre>{`from crannog.builds import open_log\n\nlog = open_log("${location.origin}")`}</pre>
    </EmptyState>
  );
}
