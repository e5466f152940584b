/** Places the nodes of a graph in layers, by dagre. Loaded with the first graph. */

import { Graph, layout } from "@dagrejs/dagre";

export interface Placed {
  width: number;
  height: number;
  /** The centre of each node, in the order in which they were given. */
  nodes: { x: number; y: number }[];
  /** The points of each edge, in the order in which they were given. */
  edges: { x: number; y: number }[][];
}

export function place(
  nodes: number,
  edges: readonly (readonly [number, number])[],
  size: { width: number; height: number },
  direction: "LR" | "TB",
): Placed {
  const graph = new Graph({ multigraph: true });
  graph.setGraph({ rankdir: direction, nodesep: 14, ranksep: direction === "LR" ? 56 : 40, marginx: 8, marginy: 8 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (let node = 0; node < nodes; node++) graph.setNode(String(node), { ...size });
  edges.forEach(([source, target], index) => graph.setEdge(String(source), String(target), {}, String(index)));
  layout(graph);
  const { width = 0, height = 0 } = graph.graph() as { width?: number; height?: number };
  return {
    width,
    height,
    nodes: Array.from({ length: nodes }, (_none, node) => graph.node(String(node)) as { x: number; y: number }),
    edges: edges.map(
      ([source, target], index) =>
        (graph.edge(String(source), String(target), String(index)) as { points: { x: number; y: number }[] }).points,
    ),
  };
}
