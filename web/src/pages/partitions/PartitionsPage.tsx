/** Partitions: those that changed last, or one of them with its lineage. */

import { listPartitions, type PartitionState } from "../../api/builds";
import { BUILD_EVENTS } from "../../api/changes";
import { useAnswer } from "../../api/useAnswer";
import { choice, text, useAddress } from "../../app/address";
import { to } from "../../app/router";
import {
  Ago,
  Badge,
  BuildStatus,
  EmptyState,
  PageHead,
  Panel,
  Select,
  Shown,
  Table,
  TextField,
  type Column,
} from "../../components";
import { count } from "../../format/numbers";
import { NoBuilds } from "../builds/NoBuilds";
import { PartitionPage } from "./PartitionPage";
import "../builds/builds.css";

const ASKED = 5_000;
const SHOWN = 500;
const STATES = ["", "AVAILABLE", "BUILDING", "FAILED", "REQUESTED", "SCHEDULED", "DELEGATED"] as const;

export default function PartitionsPage() {
  const [state] = useAddress({ ref: text() });
  return state.ref ? <PartitionPage reference={state.ref} /> : <All />;
}

function All() {
  const [state, set] = useAddress({ q: text(), status: choice(STATES) });
  const partitions = useAnswer((signal) => listPartitions(ASKED, signal), [], { follow: [BUILD_EVENTS] });
  return (
    <>
      <PageHead title="Partitions" />
      <Panel flush>
        <div class="timeline-bar">
          <TextField
            label="Search"
            hideLabel
            type="search"
            placeholder="Part of a reference"
            value={state.q}
            onInput={(q) => set({ q })}
          />
          <Select
            label="State"
            hideLabel
            value={state.status}
            onChange={(status) => set({ status }, { push: true })}
            options={STATES.map((each) => [each, each ? each.toLowerCase() : "All states"] as const)}
          />
        </div>
        <Shown of={partitions} empty={(found) => found.length === 0 && <NoBuilds />}>
          {(found) => {
            const rows = found.filter(
              (each) =>
                each.partition_ref.toLowerCase().includes(state.q.trim().toLowerCase()) &&
                (!state.status || each.status === `PARTITION_${state.status}`),
            );
            if (!rows.length)
              return (
                <EmptyState title="No partition matches">
                  <p>
                    Searched in the {count(found.length)} that changed last. <a href={to("partitions")}>Show all</a>, or
                    write the whole reference into the address: <code>?ref=…</code>
                  </p>
                </EmptyState>
              );
            return (
              <>
                <Table
                  label="Partitions"
                  columns={columns}
                  rows={rows.slice(0, SHOWN)}
                  rowKey={(each) => each.partition_ref}
                />
                {(rows.length > SHOWN || found.length === ASKED) && (
                  <p class="pager hint">
                    The {count(Math.min(SHOWN, rows.length))} that changed last; search to see others of the newest{" "}
                    {count(found.length)}.
                  </p>
                )}
              </>
            );
          }}
        </Shown>
      </Panel>
    </>
  );
}

const columns: Column<PartitionState>[] = [
  {
    id: "ref",
    title: "Partition",
    cell: (each) => (
      <a class="wraps" href={to("partitions", { ref: each.partition_ref })}>
        {each.partition_ref}
      </a>
    ),
  },
  {
    id: "state",
    title: "State",
    cell: (each) => (
      <span class="compared">
        <BuildStatus status={each.status} />
        {each.invalidated && <Badge tone="warn">invalidated</Badge>}
      </span>
    ),
  },
  {
    id: "build",
    title: "By build",
    wide: true,
    cell: (each) =>
      each.build_request_id && (
        <a class="wraps" href={to("builds", each.build_request_id, { run: each.job_run_id })}>
          {each.build_request_id}
        </a>
      ),
  },
  { id: "says", title: "Says", wide: true, cell: (each) => <span class="wraps">{each.message}</span> },
  { id: "changed", title: "Changed", align: "right", cell: (each) => <Ago at={each.updated_at} /> },
];
