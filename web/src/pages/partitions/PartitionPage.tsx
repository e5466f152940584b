import { useMemo } from "preact/hooks";
import { lineage, listEvents, listPartitions, partitionState, type Edge, type Lineage } from "../../api/builds";
import { BUILD_EVENTS } from "../../api/changes";
import { useAnswer } from "../../api/useAnswer";
import { choice, text, useAddress, whole } from "../../app/address";
import { to } from "../../app/router";
import { useTitle } from "../../app/title";
import {
  Ago,
  Badge,
  BuildStatus,
  CopyButton,
  EmptyState,
  GraphView,
  PageHead,
  Panel,
  Select,
  Shown,
  statusTone,
  statusWord,
  type GraphNode,
} from "../../components";
import { counted } from "../../format/numbers";
import { EventTable } from "../builds/EventsTab";

const MOST_NODES = 200;
const MOST_EVENTS = 100;
const KNOWN = 5_000;
const DEPTHS = ["1", "2", "3", "5", "10", "100"] as const;

interface Both {
  upstream: Lineage | null;
  downstream: Lineage | null;
  states: Map<string, string>;
}

async function ask(ref: string, direction: string, depth: number, signal: AbortSignal): Promise<Both> {
  const half = (wanted: "upstream" | "downstream") =>
    direction === "both" || direction === wanted
      ? lineage({ partition_ref: ref, direction: wanted, depth, limit: MOST_NODES }, signal)
      : Promise.resolve(null);
  const [upstream, downstream, known] = await Promise.all([
    half("upstream"),
    half("downstream"),
    listPartitions(KNOWN, signal),
  ]);
  return { upstream, downstream, states: new Map(known.map((each) => [each.partition_ref, each.status])) };
}

/** One partition: its state, what it was made of and what was made of it, and what happened to it. */
export function PartitionPage({ reference }: { reference: string }) {
  useTitle(reference);
  const [state, set] = useAddress({
    ref: text(),
    direction: choice(["both", "upstream", "downstream"]),
    depth: whole(2),
  });
  const follow = [BUILD_EVENTS];
  const current = useAnswer((signal) => partitionState(reference, signal), [reference], { follow });
  const found = useAnswer(
    (signal) => ask(reference, state.direction, state.depth, signal),
    [reference, state.direction, state.depth],
    { follow },
  );
  const events = useAnswer(
    (signal) => listEvents({ partition_ref: [reference], limit: MOST_EVENTS, descending: true }, signal),
    [reference],
    { follow },
  );
  return (
    <>
      <PageHead
        title={reference}
        above={<a href={to("partitions")}>Partitions</a>}
        actions={<CopyButton text={reference} what="reference" />}
      >
        {current.data && (
          <div class="facts">
            <BuildStatus status={current.data.status} />
            {current.data.invalidated && <Badge tone="warn">invalidated</Badge>}
            <span>
              changed <Ago at={current.data.updated_at} />
            </span>
            {current.data.build_request_id && (
              <span>
                by{" "}
                <a href={to("builds", current.data.build_request_id, { run: current.data.job_run_id })}>
                  {current.data.build_request_id}
                </a>
              </span>
            )}
            {current.data.message && <span class="said">{current.data.message}</span>}
          </div>
        )}
      </PageHead>
      {current.data === null && (
        <EmptyState title="The log has no state of this partition">
          <p>
            No event names it as made. <a href={to("partitions")}>Show the partitions that changed last</a>.
          </p>
        </EmptyState>
      )}
      <Panel
        title="Lineage"
        flush
        actions={
          <>
            <Select
              label="Direction"
              hideLabel
              value={state.direction}
              onChange={(direction) => set({ direction }, { push: true })}
              options={[
                ["both", "Both ways"],
                ["upstream", "What it was made of"],
                ["downstream", "What was made of it"],
              ]}
            />
            <Select
              label="Steps"
              hideLabel
              value={String(state.depth)}
              onChange={(depth) => set({ depth: Number(depth) }, { push: true })}
              options={(DEPTHS as readonly string[]).map((each) => [each, counted(Number(each), "step")] as const)}
            />
          </>
        }
      >
        <Shown of={found}>{(both) => <Drawn both={both} reference={reference} state={state} />}</Shown>
      </Panel>
      <Panel title="Events" flush>
        <Shown of={events} empty={(page) => page.events.length === 0 && <EmptyState title="No event names it" />}>
          {(page) => <EventTable events={page.events} />}
        </Shown>
      </Panel>
    </>
  );
}

interface DrawnProps {
  both: Both;
  reference: string;
  state: { direction: string; depth: number };
}

function Drawn({ both, reference, state }: DrawnProps) {
  const { nodes, edges } = useMemo(() => {
    const refs = [
      ...new Set([reference, ...(both.upstream?.partitions ?? []), ...(both.downstream?.partitions ?? [])]),
    ];
    const all = [...(both.upstream?.edges ?? []), ...(both.downstream?.edges ?? [])];
    const seen = new Map<string, Edge>(all.map((edge) => [`${edge.input_ref}\n${edge.output_ref}`, edge]));
    return {
      nodes: refs.map((ref): GraphNode => {
        const status = both.states.get(ref);
        // The last part, often a date, is the same for most of them.
        const [, head, part] = /^(.+)\/([^/]+)$/.exec(ref) ?? [ref, ref, ""];
        return {
          id: ref,
          label: head!,
          note: [status ? statusWord(status) : "state not known", part].filter(Boolean).join(" · "),
          tone: status ? statusTone(status) : "neutral",
          chosen: ref === reference,
          dashed: !status,
          href: to("partitions", {
            ref,
            direction: state.direction === "both" ? "" : state.direction,
            depth: state.depth === 2 ? "" : state.depth,
          }),
        };
      }),
      edges: [...seen.values()].map((edge) => ({ from: edge.input_ref, to: edge.output_ref, dashed: edge.planned })),
    };
  }, [both, reference, state.direction, state.depth]);
  if (nodes.length === 1)
    return (
      <EmptyState title="No lineage in this direction">
        <p>Runs tell what they read and made by their manifests; the log has none with this partition.</p>
      </EmptyState>
    );
  return (
    <>
      {(both.upstream?.truncated || both.downstream?.truncated) && (
        <p class="timeline-bar hint">
          {nodes.length > MOST_NODES
            ? `▲ Only the nearest ${MOST_NODES} edges each way are shown. Choose fewer steps.`
            : `What is further away than ${counted(state.depth, "step")} is left out.`}
        </p>
      )}
      <GraphView label="Lineage" nodes={nodes} edges={edges} />
    </>
  );
}
