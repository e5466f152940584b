import { dependencies, type Dependency } from "../../api/traceAnalysis";
import { traceMetrics } from "../../api/traces";
import { useAnswer } from "../../api/useAnswer";
import { boundsOf } from "../../app/range";
import { to } from "../../app/router";
import { Badge, Count, EmptyState, Panel, Shown, Swatch, Table, type Column } from "../../components";
import { colourOf } from "../../format/colours";
import { count, duration, percent, rate, shortCount } from "../../format/numbers";
import type { FiguresState } from "./figures";
import { layoutOf, NODE, pathOf, type Layout, type PlacedEdge } from "./layout";

const WHOLE = "36500d";

interface Service {
  name: string;
  perSecond: number;
  errorRate: number;
  p95: number;
}

interface Found {
  services: Map<string, Service>;
  calls: Dependency[];
  layout: Layout;
  /** Services that call no other, and that no other calls. */
  alone: string[];
}

async function ask(state: FiguresState, now: bigint, signal: AbortSignal): Promise<Found> {
  const { start, end } = boundsOf(state, now);
  const range = { start: start?.toString(), end: (end ?? (start === null ? null : now))?.toString() };
  const [points, all] = await Promise.all([
    traceMetrics({ ...range, step: WHOLE, group_by: ["service"] }, signal),
    dependencies(range, signal),
  ]);
  const calls = state.service
    ? all.filter((each) => each.parent === state.service || each.child === state.service)
    : all;
  const services = new Map<string, Service>();
  for (const point of points) {
    const name = point.group.service ?? "";
    const wanted =
      !state.service || name === state.service || calls.some((each) => each.parent === name || each.child === name);
    if (wanted) services.set(name, { name, perSecond: point.rate, errorRate: point.error_rate, p95: point.p95_ns });
  }
  for (const name of calls.flatMap((call) => [call.parent, call.child])) {
    if (!services.has(name)) services.set(name, { name, perSecond: 0, errorRate: 0, p95: 0 });
  }
  const connected = new Set(calls.flatMap((call) => [call.parent, call.child]));
  const layout = await layoutOf([...connected].toSorted(), calls);
  const alone = [...services.keys()].filter((name) => !connected.has(name)).toSorted();
  return { services, calls, layout, alone };
}

/** Which services call which: as a graph to click through, and the same as a table. */
export function ServiceMap({ state, now }: { state: FiguresState; now: bigint }) {
  const found = useAnswer(
    (signal) => ask(state, now, signal),
    [state.service, state.last, state.start, state.end, now],
  );
  return (
    <Shown
      of={found}
      what="Drawing the map"
      empty={(map) =>
        map.services.size === 0 && (
          <EmptyState title="No service sent spans then">
            <p>Widen the time, or name no service.</p>
          </EmptyState>
        )
      }
    >
      {(map) => (
        <>
          <Panel title="Service map" flush>
            <div class="map-frame" tabIndex={0} role="region" aria-label="Service map">
              {map.calls.length > 0 && <Graph map={map} state={state} />}
              {map.alone.length > 0 && (
                <div class="map-alone">
                  {map.alone.map((name) => (
                    <Node key={name} service={map.services.get(name)!} state={state} />
                  ))}
                </div>
              )}
            </div>
            <p class="hint table-note">
              The number at an arrow counts the calls. Red with ✕: some failed. Open a service to see its figures.
              {map.alone.length > 0 && map.calls.length > 0 && " Services without arrows call no other."}
            </p>
          </Panel>
          <Panel title="Calls between services" flush>
            <Calls calls={map.calls} state={state} />
          </Panel>
        </>
      )}
    </Shown>
  );
}

function Graph({ map, state }: { map: Found; state: FiguresState }) {
  const { layout, services } = map;
  const most = map.calls.reduce((top, call) => Math.max(top, call.calls), 1);
  return (
    <div class="service-map" style={{ width: `${layout.width}px`, height: `${layout.height}px` }}>
      <svg width={layout.width} height={layout.height} aria-hidden="true">
        <defs>
          {["plain", "failed"].map((kind) => (
            <marker
              key={kind}
              id={`arrow-${kind}`}
              class={kind}
              viewBox="0 0 8 8"
              refX="7"
              refY="4"
              markerWidth="8"
              markerHeight="8"
              markerUnits="userSpaceOnUse"
              orient="auto"
            >
              <path d="M0,0 L8,4 L0,8 z" />
            </marker>
          ))}
        </defs>
        {layout.edges.map((edge) => (
          <Arrow key={`${edge.parent} ${edge.child}`} edge={edge} most={most} />
        ))}
      </svg>
      {layout.nodes.map(({ name, left, top }) => (
        <Node key={name} service={services.get(name)!} state={state} at={{ left, top }} />
      ))}
    </div>
  );
}

interface NodeProps {
  service: Service;
  state: FiguresState;
  at?: { left: number; top: number };
}

function Node({ service: { name, perSecond, errorRate, p95 }, state, at }: NodeProps) {
  const range = { last: state.last, start: state.start, end: state.end };
  return (
    <a
      class={`map-node${errorRate ? " failed" : ""}`}
      href={to("services", { service: name, by: "operation", ...range })}
      style={{
        ...(at ? { position: "absolute", left: `${at.left}px`, top: `${at.top}px` } : {}),
        width: `${NODE.width}px`,
        height: `${NODE.height}px`,
      }}
      title={name}
    >
      <span class="map-name">
        <Swatch index={colourOf(name)} />
        {name}
      </span>
      <span class="hint">
        {rate(perSecond)}, p95 {duration(p95)}
      </span>
      <span class={errorRate ? "map-errors" : "hint"}>
        {errorRate ? `✕ ${percent(errorRate)} errors` : "no errors"}
      </span>
    </a>
  );
}

function Arrow({ edge, most }: { edge: PlacedEdge; most: number }) {
  const kind = edge.errors ? "failed" : "plain";
  const width = 1 + 3 * (Math.log(edge.calls + 1) / Math.log(most + 1));
  return (
    <g class={`map-edge ${kind}`}>
      <path d={pathOf(edge.points)} stroke-width={width} marker-end={`url(#arrow-${kind})`} />
      <text x={edge.label.x} y={edge.label.y}>
        {`${edge.errors ? "✕ " : ""}${shortCount(edge.calls)}`}
      </text>
    </g>
  );
}

function Calls({ calls, state }: { calls: readonly Dependency[]; state: FiguresState }) {
  const range = { last: state.last, start: state.start, end: state.end };
  const columns: Column<Dependency>[] = [
    {
      id: "parent",
      title: "From",
      cell: (call) => <a href={to("services", { service: call.parent, by: "operation", ...range })}>{call.parent}</a>,
    },
    {
      id: "child",
      title: "To",
      cell: (call) => <a href={to("services", { service: call.child, by: "operation", ...range })}>{call.child}</a>,
    },
    { id: "calls", title: "Calls", align: "right", cell: (call) => <Count value={call.calls} /> },
    {
      id: "errors",
      title: "Errors",
      align: "right",
      cell: (call) =>
        call.errors ? (
          <Badge tone="error" title={`${count(call.errors)} of ${count(call.calls)}`}>
            {percent(call.errors / call.calls)}
          </Badge>
        ) : (
          <span class="nothing">–</span>
        ),
    },
  ];
  if (!calls.length) {
    return (
      <EmptyState title="No service called another">
        <p>A call is a span whose parent is a span of another service.</p>
      </EmptyState>
    );
  }
  return <Table label="Calls" columns={columns} rows={calls} rowKey={(call) => `${call.parent} ${call.child}`} />;
}
