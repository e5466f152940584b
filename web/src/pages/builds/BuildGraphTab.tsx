import { useMemo } from "preact/hooks";
import type { JobGraph } from "../../api/builds";
import type { Answered } from "../../api/useAnswer";
import { choice, text, useAddress } from "../../app/address";
import { to } from "../../app/router";
import {
  Button,
  EmptyState,
  GraphView,
  Panel,
  Select,
  Shown,
  statusTone,
  TextField,
  type GraphNode,
} from "../../components";
import { count } from "../../format/numbers";

/** More nodes than this are slow to place and hard to read: one chooses some of them. */
const MOST_NODES = 300;
const STATES = ["failed", "running", "scheduled", "planned", "cancelled", "completed"] as const;

interface Props {
  graph: Answered<JobGraph>;
  buildId: string;
  run: string;
}

/** The jobs of a build and what they wait for, by state. */
export function BuildGraphTab({ graph, buildId, run }: Props) {
  const [state, set] = useAddress({ job: text(), state: choice(["", ...STATES]) });
  if (graph.error?.status === 404)
    return (
      <EmptyState title="The build has no job graph">
        <p>Its orchestrator wrote no event of kind job_graph. The timeline has the runs.</p>
      </EmptyState>
    );
  return (
    <Panel flush>
      <Shown of={graph}>
        {(found) => (
          <>
            <div class="timeline-bar">
              <TextField
                label="Jobs"
                hideLabel
                type="search"
                placeholder="Only jobs whose label contains…"
                value={state.job}
                onInput={(job) => set({ job })}
              />
              <Select
                label="State"
                hideLabel
                value={state.state}
                onChange={(chosen) => set({ state: chosen }, { push: true })}
                options={[["", "All states"], ...STATES.map((each) => [each, stateLabel(found, each)] as const)]}
              />
              {(state.job || state.state) && (
                <Button onClick={() => set({ job: "", state: "" }, { push: true })}>Show all jobs</Button>
              )}
            </div>
            <Chosen graph={found} buildId={buildId} run={run} job={state.job} only={state.state} />
          </>
        )}
      </Shown>
    </Panel>
  );
}

function stateLabel(graph: JobGraph, state: string): string {
  return `${state} (${count(graph.nodes.filter((node) => node.state === state).length)})`;
}

interface ChosenProps {
  graph: JobGraph;
  buildId: string;
  run: string;
  job: string;
  only: string;
}

function Chosen({ graph, buildId, run, job, only }: ChosenProps) {
  const { nodes, edges, matches } = useMemo(() => {
    const wanted = new Set(
      graph.nodes
        .filter((node) => (!only || node.state === only) && node.job_label.toLowerCase().includes(job.toLowerCase()))
        .map((node) => node.id),
    );
    const matches = wanted.size;
    // With the jobs beside them, so that one sees what they wait for.
    if (job || only)
      for (const edge of graph.edges.filter((each) => wanted.has(each.source) !== wanted.has(each.target)))
        wanted.add(edge.source).add(edge.target);
    const seen = new Set<string>();
    const edges = graph.edges.flatMap(({ source, target }) => {
      const key = `${source} ${target}`;
      if (seen.has(key)) return [];
      seen.add(key);
      return [{ from: String(source), to: String(target) }];
    });
    return { nodes: graph.nodes.filter((node) => wanted.has(node.id)), edges, matches };
  }, [graph, job, only]);
  const shown = nodes.map((node): GraphNode => ({
    id: String(node.id),
    label: node.job_label,
    note: node.outputs.length > 1 ? `${node.state}, ${node.outputs.length} outputs` : node.state,
    tone: statusTone(node.state),
    dashed: node.state === "planned",
    chosen: !!node.job_run_id && node.job_run_id === run,
    href: to("builds", buildId, { view: "graph", job, state: only, run: node.job_run_id ?? "" }),
  }));
  if (matches === 0) return <EmptyState title="No job matches">Search for a part of its label.</EmptyState>;
  if (nodes.length > MOST_NODES)
    return (
      <EmptyState title={`The graph has ${count(nodes.length)} jobs`}>
        <p>Choose a state, or write a part of a label above: those jobs are shown with the ones beside them.</p>
      </EmptyState>
    );
  return <GraphView label="Job graph" nodes={shown} edges={edges} />;
}
