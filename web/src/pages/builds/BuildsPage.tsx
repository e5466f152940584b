/** All builds, newest first, by status or by a search in ids, partitions and messages. */

import { useState } from "preact/hooks";
import { buildActivity, listBuilds, type BuildPage, type BuildSummary } from "../../api/builds";
import { BUILD_EVENTS } from "../../api/changes";
import { useAnswer } from "../../api/useAnswer";
import { choice, list, text, useAddress, whole } from "../../app/address";
import { go, to } from "../../app/router";
import {
  Ago,
  BuildStatus,
  Button,
  Duration,
  EmptyState,
  PageHead,
  Panel,
  Shown,
  Table,
  TextField,
  type Column,
} from "../../components";
import { count } from "../../format/numbers";
import { nowNs } from "../../format/times";
import { NoBuilds } from "./NoBuilds";
import "./builds.css";

const STATUSES = ["all", "running", "failed", "completed", "cancelled"] as const;
// The states that each choice asks for. The server takes one at a time.
const ASKED: Record<(typeof STATUSES)[number], readonly (string | undefined)[]> = {
  all: [undefined],
  running: ["RECEIVED", "PLANNING", "ANALYSIS_COMPLETED", "EXECUTING"],
  failed: ["FAILED"],
  completed: ["COMPLETED"],
  cancelled: ["CANCELLED"],
};
const PAGE = 50;
const SEARCHED = 2_000;

interface Found extends BuildPage {
  /** Whether only the newest builds were searched. */
  partly: boolean;
}

async function find(
  status: (typeof STATUSES)[number],
  search: string,
  offset: number,
  signal: AbortSignal,
): Promise<Found> {
  const asked = ASKED[status];
  // A search, and several states at once, are put together here from all that is asked.
  const whole = search !== "" || asked.length > 1;
  const pages = await Promise.all(
    asked.map((each) =>
      listBuilds(
        { ...(each ? { status: each } : {}), limit: whole ? SEARCHED : PAGE, offset: whole ? 0 : offset },
        signal,
      ),
    ),
  );
  const total = pages.reduce((sum, page) => sum + page.total, 0);
  const builds = pages.flatMap((page) => page.builds);
  if (!whole) return { builds, total, partly: false };
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const matching = builds
    .filter((build) => {
      const all = [build.build_request_id, build.message, ...build.requested_partitions].join("\n").toLowerCase();
      return words.every((word) => all.includes(word));
    })
    .sort((left, right) => (left.created_at < right.created_at ? 1 : left.created_at > right.created_at ? -1 : 0));
  return {
    builds: matching.slice(offset, offset + PAGE),
    total: matching.length,
    partly: pages.some((page) => page.total > page.builds.length),
  };
}

export default function BuildsPage() {
  const [state, set] = useAddress({ status: choice(STATUSES), q: text(), offset: whole(0), pick: list() });
  const [typed, setTyped] = useState(state.q);
  const follow = [BUILD_EVENTS];
  const activity = useAnswer(buildActivity, [], { follow });
  const builds = useAnswer(
    (signal) => find(state.status, state.q.trim(), state.offset, signal),
    [state.status, state.q, state.offset],
    { follow },
  );
  const pick = (id: string, on: boolean) =>
    set({ pick: on ? [...state.pick, id].slice(-2) : state.pick.filter((each) => each !== id) });
  return (
    <>
      <PageHead
        title="Builds"
        actions={
          <Button
            because={state.pick.length === 2 ? undefined : "Choose two builds by their boxes first"}
            onClick={() => go(to("builds", "compare", { a: state.pick[0], b: state.pick[1] }))}
          >
            Compare {state.pick.length} of 2
          </Button>
        }
      />
      <Panel>
        <form
          class="form-row"
          onSubmit={(event) => {
            event.preventDefault();
            set({ q: typed, offset: 0 }, { push: true });
          }}
        >
          <fieldset class="choices">
            <legend class="visually-hidden">Status</legend>
            {STATUSES.map((status) => (
              <Button
                key={status}
                kind={status === state.status ? "primary" : "plain"}
                aria-pressed={status === state.status}
                onClick={() => set({ status, offset: 0 }, { push: true })}
              >
                {status} {activity.data && <Total status={status} counts={activity.data.builds_by_status} />}
              </Button>
            ))}
          </fieldset>
          <TextField
            label="Search"
            hideLabel
            type="search"
            placeholder="Id, partition or message"
            value={typed}
            onInput={setTyped}
          />
          <Button type="submit">Search</Button>
        </form>
      </Panel>
      <Panel flush>
        <Shown of={builds} empty={(found) => found.total === 0 && <Nothing any={activity.data?.total_builds_count} />}>
          {(found) => (
            <>
              <Table
                label="Builds"
                columns={columns(state.pick, pick)}
                rows={found.builds}
                rowKey={(build) => build.build_request_id}
              />
              <div class="pager">
                {found.partly && (
                  <span class="hint">Searched in the newest {count(SEARCHED)} builds of each status.</span>
                )}
                <span class="hint">
                  {count(state.offset + 1)}–{count(state.offset + found.builds.length)} of {count(found.total)}
                </span>
                <Button
                  disabled={state.offset === 0}
                  onClick={() => set({ offset: Math.max(0, state.offset - PAGE) }, { push: true })}
                >
                  ← Newer
                </Button>
                <Button
                  disabled={state.offset + PAGE >= found.total}
                  onClick={() => set({ offset: state.offset + PAGE }, { push: true })}
                >
                  Older →
                </Button>
              </div>
            </>
          )}
        </Shown>
      </Panel>
    </>
  );
}

function Total({ status, counts }: { status: (typeof STATUSES)[number]; counts: Record<string, number> }) {
  const sum = Object.entries(counts).reduce((all, [name, amount]) => {
    const short = name.replace("BUILD_REQUEST_", "");
    return status === "all" || ASKED[status].includes(short) ? all + amount : all;
  }, 0);
  return <span class="choice-count">{count(sum)}</span>;
}

function columns(picked: readonly string[], pick: (id: string, on: boolean) => void): Column<BuildSummary>[] {
  return [
    {
      id: "build",
      title: "Build",
      cell: (build) => (
        <span class="picked">
          <input
            type="checkbox"
            aria-label={`Compare ${build.build_request_id}`}
            checked={picked.includes(build.build_request_id)}
            onChange={(event) => pick(build.build_request_id, event.currentTarget.checked)}
          />
          <a href={to("builds", build.build_request_id)}>{build.build_request_id}</a>
        </span>
      ),
    },
    {
      id: "status",
      title: "Status",
      cell: (build) => (
        <>
          <BuildStatus status={build.status} />
          {build.cancel_requested && !build.ended_at && <span class="hint"> being cancelled</span>}
        </>
      ),
    },
    {
      id: "asked",
      title: "Asked for",
      wide: true,
      cell: (build) => (
        <span class="hint wraps" title={build.requested_partitions.join("\n")}>
          {build.requested_partitions.slice(0, 2).join(", ")}
          {build.requested_partitions.length > 2 && ` and ${build.requested_partitions.length - 2} more`}
          {build.message && <span class="said"> · {build.message}</span>}
        </span>
      ),
    },
    {
      id: "took",
      title: "Took",
      align: "right",
      cell: (build) =>
        build.ended_at ? (
          <Duration ns={build.duration_ns} />
        ) : (
          <span class="hint">
            <Duration ns={nowNs() - build.created_at} /> so far
          </span>
        ),
    },
    { id: "began", title: "Began", align: "right", wide: true, cell: (build) => <Ago at={build.created_at} /> },
  ];
}

function Nothing({ any }: { any: number | undefined }) {
  if (!any) return <NoBuilds />;
  return (
    <EmptyState title="No build matches">
      <p>
        Search for fewer words or another status; <a href={to("builds")}>show all builds</a>.
      </p>
    </EmptyState>
  );
}
