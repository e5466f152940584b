/** What is in the lake, at a glance. */

import { buildActivity } from "../../api/builds";
import { BUILD_EVENTS } from "../../api/changes";
import { useAnswer } from "../../api/useAnswer";
import { to } from "../../app/router";
import { Figure, PageHead } from "../../components";
import { bytes, count, shortCount } from "../../format/numbers";
import { AttentionPanel } from "./AttentionPanel";
import { BuildsPanel } from "./BuildsPanel";
import "./home.css";
import { SpansPanel } from "./SpansPanel";
import { TablesPanel, useUpkeep } from "./TablesPanel";

const EVERY_MS = 30_000;

export default function HomePage() {
  const upkeep = useUpkeep();
  const activity = useAnswer(buildActivity, [], { everyMs: EVERY_MS, follow: [BUILD_EVENTS] });
  const tables = (upkeep.data ?? []).filter((table) => !table.error);
  const rows = tables.reduce((sum, table) => sum + Number(table.rows), 0);
  const size = tables.reduce((sum, table) => sum + table.base_bytes + table.staged_bytes, 0);
  const failed = activity.data?.builds_by_status["BUILD_REQUEST_FAILED"] ?? 0;
  return (
    <>
      <PageHead title="Home" />
      <div class="figures">
        <Figure label="Tables" value={upkeep.data ? count(upkeep.data.length) : "…"} href={to("tables")} />
        <Figure label="Rows" value={upkeep.data ? shortCount(rows) : "…"} href={to("tables")} />
        <Figure label="Size" value={upkeep.data ? bytes(size) : "…"} href={to("upkeep")} />
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
      <AttentionPanel upkeep={upkeep.data ?? []} />
      <SpansPanel />
      <div class="columns">
        <TablesPanel upkeep={upkeep} />
        <BuildsPanel activity={activity} />
      </div>
    </>
  );
}
