/** Places of services and calls on a map, by dagre, which is loaded with the first map. */

import type { Dependency } from "../../api/traceAnalysis";

export const NODE = { width: 172, height: 64 };

export interface PlacedNode {
  name: string;
  left: number;
  top: number;
}

export interface PlacedEdge extends Dependency {
  points: { x: number; y: number }[];
  label: { x: number; y: number };
}

export interface Layout {
  width: number;
  height: number;
  nodes: PlacedNode[];
  edges: PlacedEdge[];
}

const LABEL = { width: 60, height: 18 };

/** Returns the path of an arrow, with its corners rounded. */
export function pathOf(points: PlacedEdge["points"]): string {
  const at = ({ x, y }: { x: number; y: number }) => `${x.toFixed(1)},${y.toFixed(1)}`;
  const half = (left: number, right: number) => (left + right) / 2;
  const inner = points.slice(1, -1).map((point, index) => {
    const next = points[index + 2]!;
    return `Q${at(point)} ${at({ x: half(point.x, next.x), y: half(point.y, next.y) })}`;
  });
  return [`M${at(points[0]!)}`, ...inner, `L${at(points.at(-1)!)}`].join(" ");
}

export async function layoutOf(names: readonly string[], calls: readonly Dependency[]): Promise<Layout> {
  const dagre = await import("@dagrejs/dagre");
  const graph = new dagre.graphlib.Graph({ multigraph: false });
  graph.setGraph({ rankdir: "LR", nodesep: 18, ranksep: 40, marginx: 12, marginy: 12 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const name of names) graph.setNode(name, { ...NODE });
  for (const call of calls) graph.setEdge(call.parent, call.child, { ...LABEL, labelpos: "c" });
  dagre.layout(graph);
  const size = graph.graph();
  return {
    width: Math.ceil(size.width ?? 0),
    height: Math.ceil(size.height ?? 0),
    nodes: names.map((name) => {
      const node = graph.node(name)!;
      return { name, left: node.x! - NODE.width / 2, top: node.y! - NODE.height / 2 };
    }),
    edges: calls.map((call) => {
      const edge = graph.edge(call.parent, call.child) as { points: { x: number; y: number }[]; x: number; y: number };
      const [from, to] = [graph.node(call.parent)!, graph.node(call.child)!];
      const points = [...edge.points];
      // From the middle of one side to the middle of the other: arrows do not begin at corners.
      if (from.x! < to.x!) {
        points[0] = { x: from.x! + NODE.width / 2, y: from.y! };
        points[points.length - 1] = { x: to.x! - NODE.width / 2, y: to.y! };
      }
      return { ...call, points, label: { x: edge.x, y: edge.y } };
    }),
  };
}
