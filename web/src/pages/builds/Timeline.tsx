/**
 * The runs of a build over time: rows with a bar each, of which only those on the screen are made.
 *
 * The thin part of a bar is the wait from scheduling to start. Dragging over the axis zooms.
 */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { JobRun } from "../../api/builds";
import { Button, BuildStatus, Duration, Select, SHAPES, statusTone, statusWord } from "../../components";
import { useVirtual } from "../../components/virtual";
import { counted, duration } from "../../format/numbers";
import { nowNs, shortTime } from "../../format/times";

interface Props {
  runs: readonly JobRun[];
  /** When the build ended; null while it runs. */
  until: bigint | null;
  from: bigint | null;
  to: bigint | null;
  order: "start" | "longest";
  chosen: string;
  onZoom: (from: bigint | null, to: bigint | null) => void;
  onOrder: (order: "start" | "longest") => void;
  onOpen: (run: string) => void;
}

const ROW_PX = 30;
const TICK_MS = 1_000;
const LEAST_NS = 1_000_000;
// Later ones would be cut at the edge.
const LAST_TICK = 0.93;

export function Timeline(props: Props) {
  const { runs, until, order, chosen, onOpen, onZoom } = props;
  const now = useNow(until === null);
  const rows = useMemo(() => sorted(runs, order), [runs, order]);
  const first = runs.reduce((least, run) => (run.first_at < least ? run.first_at : least), runs[0]!.first_at);
  const last = runs.reduce((most, run) => {
    const end = run.ended_at ?? now;
    return end > most ? end : most;
  }, first + 1n);
  const from = props.from ?? first;
  const span = Math.max(LEAST_NS, Number((props.to ?? last) - from));
  const share = (at: bigint) => Number(at - from) / span;
  const view = useVirtual(rows.length, ROW_PX);
  const [at, setAt] = useState(0);
  const frame = useRef<HTMLDivElement | null>(null);
  const move = (event: KeyboardEvent) => {
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    const row = Math.max(0, Math.min(rows.length - 1, next));
    setAt(row);
    view.show(row);
    requestAnimationFrame(() =>
      (frame.current?.querySelector(`[data-row="${row}"] button`) as HTMLElement | null)?.focus(),
    );
  };
  return (
    <div class="timeline">
      <div class="timeline-bar">
        <span class="hint">{counted(runs.length, "job run")}</span>
        <Select
          label="Order"
          hideLabel
          value={order}
          onChange={props.onOrder}
          options={[
            ["start", "By start"],
            ["longest", "Longest first"],
          ]}
        />
        {(props.from !== null || props.to !== null) && (
          <Button onClick={() => onZoom(null, null)}>Show the whole build</Button>
        )}
      </div>
      <Axis from={from} span={span} onZoom={onZoom} />
      <div
        class="timeline-rows"
        role="table"
        aria-label="Job runs"
        aria-rowcount={rows.length}
        ref={(element) => {
          frame.current = element;
          view.frame(element);
        }}
        onScroll={view.onScroll}
        onKeyDown={move}
      >
        <div role="rowgroup" style={{ height: `${view.height}px` }}>
          <div style={{ transform: `translateY(${view.top}px)` }}>
            {rows.slice(view.from, view.until).map((run, index) => {
              const row = view.from + index;
              return (
                <div
                  key={run.job_run_id}
                  role="row"
                  aria-rowindex={row + 1}
                  data-row={row}
                  class={run.job_run_id === chosen ? "timeline-row chosen" : "timeline-row"}
                >
                  <div role="rowheader" class="timeline-name">
                    <button
                      type="button"
                      class="link"
                      tabIndex={row === at || (at < view.from && index === 0) || at >= view.until ? 0 : -1}
                      title={run.job_label}
                      onFocus={() => setAt(row)}
                      onClick={() => onOpen(run.job_run_id)}
                    >
                      <bdi>{run.job_label}</bdi>
                    </button>
                  </div>
                  <div role="cell" class="timeline-state">
                    <BuildStatus status={run.status} />
                  </div>
                  <div role="cell" class="timeline-took">
                    <Duration ns={run.ended_at ? run.duration_ns : now - (run.started_at ?? run.first_at)} />
                  </div>
                  <div role="cell" class="timeline-lane" onClick={() => onOpen(run.job_run_id)}>
                    <Bar run={run} share={share} now={now} />
                  </div>
                </div>
              );
            })}
          </div>
        </div>
      </div>
    </div>
  );
}

function Bar({ run, share, now }: { run: JobRun; share: (at: bigint) => number; now: bigint }) {
  const begin = share(run.first_at);
  const start = share(run.started_at ?? run.ended_at ?? now);
  const end = share(run.ended_at ?? now);
  const tone = statusTone(run.status);
  const title = [
    `${run.job_label}: ${statusWord(run.status)}`,
    `scheduled ${shortTime(run.first_at, 3)}`,
    run.started_at ? `began after ${duration(run.started_at - run.first_at)}` : "not begun",
  ].join("\n");
  return (
    <div aria-hidden="true" title={title}>
      {start > begin && (
        <div class={`timeline-wait ${tone}`} style={{ left: `${begin * 100}%`, width: `${(start - begin) * 100}%` }} />
      )}
      {run.started_at !== null && (
        <div
          class={`timeline-work ${tone}`}
          style={{ left: `${start * 100}%`, width: `${Math.max(0, end - start) * 100}%` }}
        >
          {SHAPES[tone]}
        </div>
      )}
    </div>
  );
}

const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 43_200, 86_400];

function Axis({ from, span, onZoom }: { from: bigint; span: number; onZoom: (from: bigint, to: bigint) => void }) {
  const [drag, setDrag] = useState<[number, number] | null>(null);
  const seconds = span / 1e9;
  const step = seconds < 5 ? seconds / 5 : (STEPS.find((each) => seconds / each <= 7) ?? seconds / 6);
  const ticks = Array.from({ length: Math.floor(seconds / step) + 1 }, (_none, index) => (index * step) / seconds);
  const shareOf = (event: PointerEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    return Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
  };
  const instant = (share: number) => from + BigInt(Math.round(share * span));
  const finish = (event: PointerEvent) => {
    if (!drag) return;
    const [low, high] = [Math.min(drag[0], shareOf(event)), Math.max(drag[0], shareOf(event))];
    setDrag(null);
    if (high - low > 0.01) onZoom(instant(low), instant(high));
  };
  return (
    <div class="timeline-axis">
      <span class="hint timeline-since">from {shortTime(from)}</span>
      <div
        class="timeline-ticks"
        title="Drag to zoom into a range"
        onPointerDown={(event) => {
          event.currentTarget.setPointerCapture(event.pointerId);
          setDrag([shareOf(event), shareOf(event)]);
        }}
        onPointerMove={(event) => drag && setDrag([drag[0], shareOf(event)])}
        onPointerUp={finish}
      >
        {ticks
          .filter((share) => share < LAST_TICK)
          .map((share) => (
            <span key={share} class="timeline-tick" style={{ left: `${share * 100}%` }}>
              {share === 0 ? "0" : `+${duration(share * span)}`}
            </span>
          ))}
        {drag && (
          <div
            class="timeline-drag"
            style={{ left: `${Math.min(...drag) * 100}%`, width: `${Math.abs(drag[1] - drag[0]) * 100}%` }}
          />
        )}
      </div>
    </div>
  );
}

function sorted(runs: readonly JobRun[], order: "start" | "longest"): JobRun[] {
  const length = (run: JobRun) => Number(run.duration_ns ?? (run.ended_at ? 0 : Infinity));
  const place = (left: bigint, right: bigint) => (left < right ? -1 : left > right ? 1 : 0);
  return [...runs].sort((left, right) =>
    order === "longest" && length(left) !== length(right)
      ? length(right) - length(left)
      : place(left.first_at, right.first_at) || (left.job_label < right.job_label ? -1 : 1),
  );
}

/** Now, and again every second while something runs. */
function useNow(runs: boolean): bigint {
  const [now, setNow] = useState(nowNs);
  useEffect(() => {
    if (!runs) return;
    const timer = setInterval(() => setNow(nowNs()), TICK_MS);
    return () => clearInterval(timer);
  }, [runs]);
  return now;
}
