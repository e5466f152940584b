import { useMemo } from "preact/hooks";
import { SPANS } from "../../api/changes";
import { traceMetrics, type MetricPoint } from "../../api/traces";
import { useAnswer } from "../../api/useAnswer";
import { go, to } from "../../app/router";
import { EmptyState, Panel, SendSpans, Shown, TimeChart } from "../../components";
import { digits } from "../../format/numbers";
import { nowNs } from "../../format/times";

const HOURS = 3n;
const STEP_S = 60;
const EVERY_MS = 60_000;

function ask(signal: AbortSignal): Promise<MetricPoint[]> {
  return traceMetrics({ start: String(nowNs() - HOURS * 3_600_000_000_000n), step: `${STEP_S}s` }, signal);
}

/** Spans a minute and errors among them, over the last hours. */
export function SpansPanel() {
  const metrics = useAnswer(ask, [], { everyMs: EVERY_MS, follow: [SPANS] });
  return (
    <Panel title="Spans per minute, last 3 hours" actions={<a href={to("traces")}>All traces</a>}>
      <Shown of={metrics} empty={(points) => points.length === 0 && <NoSpans />}>
        {(points) => <Chart points={points} />}
      </Shown>
    </Panel>
  );
}

const perMinute = (value: number) => `${digits(value)}/min`;

function Chart({ points }: { points: readonly MetricPoint[] }) {
  const { times, series } = useMemo(() => {
    const found = new Map(points.map((point) => [Date.parse(point.start) / 1000, point]));
    const first = Math.min(...found.keys());
    const last = Math.max(...found.keys());
    const times: number[] = [];
    for (let at = first; at <= last; at += STEP_S) times.push(at);
    const spans = times.map((at) => found.get(at)?.count ?? 0);
    const errors = times.map((at) => found.get(at)?.errors ?? 0);
    return {
      times,
      series: [
        { label: "Spans", values: spans, colour: "accent" as const },
        { label: "Errors", values: errors, colour: "error" as const },
      ],
    };
  }, [points]);
  const zoom = (from: number, until: number) =>
    go(to("traces", { start: `${Math.floor(from)}000000000`, end: `${Math.ceil(until)}000000000` }));
  return (
    <TimeChart label="Spans and errors per minute" times={times} series={series} format={perMinute} onZoom={zoom} />
  );
}

function NoSpans() {
  return (
    <EmptyState title="No spans in the last 3 hours">
      <SendSpans />
    </EmptyState>
  );
}
