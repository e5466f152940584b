/** What is in the lake, at a glance. */

import { Figure, PageHead } from "../../components";
import { buildActivity } from "../../api/builds";
import { useAnswer } from "../../api/useAnswer";
import { to } from "../../app/router";
import { count } from "../../format/numbers";
import { BuildsPanel } from "./BuildsPanel";
import { SpansPanel } from "./SpansPanel";
import { TablesPanel, useTables } from "./TablesPanel";

const EVERY_MS = 15_000;

export default function HomePage() {
  const tables = useTables();
  const activity = useAnswer(buildActivity, [], { everyMs: EVERY_MS });
  const rows = tables.data?.described.reduce((sum, table) => sum + Number(table.rows), 0);
  const failed = activity.data?.builds_by_status["BUILD_REQUEST_FAILED"] ?? 0;
  return (
    <>
      <PageHead title="Home" />
      <div class="figures">
        <Figure label="Tables" value={tables.data ? count(tables.data.names.length) : "…"} href={to("tables")} />
        <Figure label="Rows" value={rows === undefined ? "…" : count(rows)} note="in the tables listed below" />
        <Figure
          label="Builds running"
          value={activity.data ? count(activity.data.active_builds_count) : "…"}
          note={activity.data ? `of ${count(activity.data.total_builds_count)}` : undefined}
          href={to("builds")}
        />
        <Figure
          label="Builds failed"
          value={activity.data ? `${failed ? "✕ " : ""}${count(failed)}` : "…"}
          tone={failed ? "error" : undefined}
          href={to("builds", { status: "failed" })}
        />
      </div>
      <SpansPanel />
      <div class="columns">
        <TablesPanel tables={tables} />
        <BuildsPanel activity={activity} />
      </div>
    </>
  );
}
