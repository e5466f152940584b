import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { go } from "../app/router";
import type { Tone } from "./Badge";
import { SHAPES } from "./Badge";
import type { Placed } from "./layout";
import "./graph-view.css";

export interface GraphNode {
  id: string;
  label: string;
  /** What it is or how it is, in a word; shown below the label. */
  note: string;
  tone?: Tone;
  /** Where a click leads. */
  href: string;
  chosen?: boolean;
  dashed?: boolean;
}

interface Props {
  label: string;
  nodes: readonly GraphNode[];
  edges: readonly { from: string; to: string; dashed?: boolean }[];
  direction?: "LR" | "TB";
}

const WIDTH = 210;
const HEIGHT = 46;
const LETTERS = 25;
const NOTE_LETTERS = 30;

/** A graph in layers. Its nodes are links: Tab goes from one to the next, arrows go along the edges. */
export function GraphView({ label, nodes, edges, direction = "LR" }: Props) {
  const [placed, setPlaced] = useState<{ key: string; at: Placed } | undefined>();
  const drawing = useRef<SVGSVGElement>(null);
  const frame = useRef<HTMLDivElement>(null);
  const numbers = useMemo(() => new Map(nodes.map((node, index) => [node.id, index])), [nodes]);
  const pairs = useMemo(
    () =>
      edges.flatMap((edge) => {
        const [source, target] = [numbers.get(edge.from), numbers.get(edge.to)];
        return source === undefined || target === undefined ? [] : [[source, target, edge.dashed ?? false] as const];
      }),
    [edges, numbers],
  );
  // States change while one looks: the places do not, unless nodes or edges come or go.
  const key = `${direction} ${nodes.map((node) => node.id).join("\n")} ${pairs.map((pair) => pair.join("-")).join(" ")}`;
  useEffect(() => {
    let gone = false;
    void import("./layout").then(({ place }) => {
      if (gone) return;
      const lines = pairs.map(([source, target]) => [source, target] as const);
      setPlaced({ key, at: place(nodes.length, lines, { width: WIDTH, height: HEIGHT }, direction) });
    });
    return () => void (gone = true);
  }, [key]);
  const chosen = nodes.findIndex((node) => node.chosen);
  const at = placed?.key === key ? placed.at : undefined;
  useEffect(() => {
    const centre = at?.nodes[chosen];
    if (centre && frame.current) {
      frame.current.scrollLeft = centre.x - frame.current.clientWidth / 2;
      frame.current.scrollTop = centre.y - frame.current.clientHeight / 2;
    }
  }, [at, chosen]);
  if (!at) return <div class="graph-frame" aria-busy="true" />;

  const along = (event: KeyboardEvent, index: number) => {
    const forward = direction === "LR" ? "ArrowRight" : "ArrowDown";
    const back = direction === "LR" ? "ArrowLeft" : "ArrowUp";
    if (event.key !== forward && event.key !== back) return;
    const next =
      event.key === forward
        ? pairs.find(([source]) => source === index)?.[1]
        : pairs.find(([, target]) => target === index)?.[0];
    if (next === undefined) return;
    event.preventDefault();
    (drawing.current?.querySelector(`[data-node="${next}"]`) as SVGElement | null)?.focus();
  };
  return (
    <div class="graph-frame" ref={frame} role="region" aria-label={label} tabIndex={0}>
      <svg ref={drawing} width={at.width} height={at.height} viewBox={`0 0 ${at.width} ${at.height}`}>
        <defs>
          <marker id="graph-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
            <path d="M0 0 8 4 0 8z" class="graph-arrow" />
          </marker>
        </defs>
        <g aria-hidden="true">
          {pairs.map(([, , dashed], index) => (
            <path
              key={index}
              class={dashed ? "graph-edge dashed" : "graph-edge"}
              d={curve(at.edges[index]!)}
              marker-end="url(#graph-arrow)"
            />
          ))}
        </g>
        {nodes.map((node, index) => {
          const { x, y } = at.nodes[index]!;
          const tone = node.tone ?? "neutral";
          return (
            <a
              key={node.id}
              href={node.href}
              data-node={index}
              class={`graph-node ${tone}${node.chosen ? " chosen" : ""}${node.dashed ? " dashed" : ""}`}
              aria-label={`${node.label}, ${node.note}`}
              aria-current={node.chosen ? "true" : undefined}
              onKeyDown={(event) => along(event, index)}
              onClick={(event) => follow(event, node.href)}
            >
              <title>{`${node.label}\n${node.note}`}</title>
              <rect x={x - WIDTH / 2} y={y - HEIGHT / 2} width={WIDTH} height={HEIGHT} rx="6" />
              <text x={x - WIDTH / 2 + 10} y={y - 4} class="graph-label">
                {shortened(node.label, LETTERS)}
              </text>
              <text x={x - WIDTH / 2 + 10} y={y + 14} class="graph-note">
                {SHAPES[tone] && `${SHAPES[tone]} `}
                {shortened(node.note, NOTE_LETTERS)}
              </text>
            </a>
          );
        })}
      </svg>
    </div>
  );
}

/** The router knows links of HTML alone. */
function follow(event: MouseEvent, href: string): void {
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || event.button !== 0) return;
  event.preventDefault();
  go(href);
}

/** Cut in the middle: both ends of a name tell more than it does. */
function shortened(text: string, letters: number): string {
  if (text.length <= letters) return text;
  const end = Math.floor(letters / 2);
  return `${text.slice(0, letters - end - 1)}…${text.slice(-end)}`;
}

function curve(points: readonly { x: number; y: number }[]): string {
  const [first, ...rest] = points;
  if (!first) return "";
  const steps = rest.map((point, index) => {
    const after = rest[index + 1];
    if (!after) return `L${point.x} ${point.y}`;
    return `Q${point.x} ${point.y} ${(point.x + after.x) / 2} ${(point.y + after.y) / 2}`;
  });
  return `M${first.x} ${first.y}${steps.join("")}`;
}
