import { useMemo, useState } from "preact/hooks";
import { heatmap, type Heatmap, type HeatmapCell, type SpanSelection } from "../../api/traceAnalysis";
import { useAnswer } from "../../api/useAnswer";
import { boundsOf } from "../../app/range";
import { Button, Count, Duration, EmptyState, Panel, Select, Shown, Table, Time, type Column } from "../../components";
import { DifferencesPanel } from "./Differences";
import { bothOf } from "./filter";
import { boxOf, readable, readBox, writeBox, type Box } from "./heat";
import { HEIGHT, HeatPicture } from "./HeatPicture";
import { isFiltered, selectionOf, type SearchState, type SetSearch } from "./search";

const TIMES = 72;
const NARROW_TIMES = 30;

interface Props {
  state: SearchState;
  set: SetSearch;
  asOf: bigint;
}

/** The spans that the picture counts. Without conditions root spans: these are the requests. */
function shownSpans(state: SearchState, asOf: bigint): { selection: SpanSelection; roots: boolean } {
  const roots = state.heat === "roots" || (state.heat === "" && !isFiltered(state));
  const now = state.at ?? asOf;
  const selection = selectionOf(state, now);
  const { end } = boundsOf(state, now);
  // A relative range ends now, also where the last spans are older.
  if (end === null && selection.start !== undefined) selection.end = String(now);
  if (roots) selection.where = bothOf(selection.where ?? "", "root");
  return { selection, roots };
}

/** Latency over time, in which one drags a box; and for the box, what sets its spans apart. */
export function Latency({ state, set, asOf }: Props) {
  const { selection, roots } = useMemo(() => shownSpans(state, asOf), [state, asOf]);
  const [asTable, setAsTable] = useState(false);
  const times = innerWidth < 800 ? NARROW_TIMES : TIMES;
  const asked = JSON.stringify(selection);
  const found = useAnswer(async (signal) => readable(await heatmap({ ...selection, times }, signal), HEIGHT), [asked], {
    when: state.heat !== "off",
  });
  const box = readBox(state.box);
  const onBox = (next: Box | null) => set({ box: next ? writeBox(next) : "" }, { push: true });
  const chosen = state.heat === "off" ? "off" : roots ? "roots" : "spans";
  const ofTraces = state.errors || (state.of === "trace" && (state.min || state.max));
  return (
    <>
      <Panel
        title="Latency over time"
        actions={
          <div class="heat-choice">
            <Select
              label="Spans in the picture"
              hideLabel
              value={chosen}
              onChange={(heat) => set({ heat, box: "" })}
              options={[
                ["roots", "Root spans"],
                ["spans", "All matching spans"],
                ["off", "Hide the picture"],
              ]}
            />
          </div>
        }
      >
        {state.heat === "off" ? (
          <p class="hint">The picture is hidden.</p>
        ) : (
          <Shown of={found} what="Counting" empty={(map) => map.cells.length === 0 && <NoSpans roots={roots} />}>
            {(map) => (
              <>
                <HeatPicture map={map} box={box} onBox={onBox} />
                {ofTraces && (
                  <p class="hint">Conditions on whole traces (with errors, duration) do not apply to the picture.</p>
                )}
                <details open={asTable} onToggle={(event) => setAsTable(event.currentTarget.open)}>
                  <summary>The same as a table</summary>
                  {asTable && <ByTime map={map} onBox={onBox} />}
                </details>
              </>
            )}
          </Shown>
        )}
      </Panel>
      {box && state.heat !== "off" && <DifferencesPanel selection={selection} box={box} state={state} set={set} />}
    </>
  );
}

function NoSpans({ roots }: { roots: boolean }) {
  return (
    <EmptyState title="No span to draw">
      {roots ? <p>No root span matches; try all matching spans.</p> : <p>Widen the time or drop a condition.</p>}
    </EmptyState>
  );
}

interface TimeRow {
  time: number;
  spans: number;
  errors: number;
  median: number | bigint;
  longest: number | bigint;
}

function rowsOf(map: Heatmap): TimeRow[] {
  const rows: TimeRow[] = [];
  const times = new Map<number, HeatmapCell[]>();
  for (const cell of map.cells) times.set(cell.time, [...(times.get(cell.time) ?? []), cell]);
  for (const [time, cells] of times) {
    const spans = cells.reduce((sum, cell) => sum + cell.count, 0);
    let passed = 0;
    const middle = cells.find((cell) => (passed += cell.count) * 2 >= spans)!;
    rows.push({
      time,
      spans,
      errors: cells.reduce((sum, cell) => sum + cell.errors, 0),
      median: map.durations_ns[middle.duration]!,
      longest: map.durations_ns[cells.at(-1)!.duration + 1]!,
    });
  }
  return rows;
}

/** What the picture shows, for those who read: one row for each time that has spans. */
function ByTime({ map, onBox }: { map: Heatmap; onBox: (box: Box) => void }) {
  const all: [number, number] = [0, map.durations_ns.length - 2];
  const columns: Column<TimeRow>[] = [
    {
      id: "time",
      title: "From",
      cell: (row) => <Time at={BigInt(map.start_ns) + BigInt(row.time) * BigInt(map.step_ns)} />,
    },
    { id: "spans", title: "Spans", align: "right", cell: (row) => <Count value={row.spans} /> },
    { id: "errors", title: "Errors", align: "right", cell: (row) => <Count value={row.errors} /> },
    { id: "median", title: "Median from", align: "right", wide: true, cell: (row) => <Duration ns={row.median} /> },
    { id: "longest", title: "Longest below", align: "right", cell: (row) => <Duration ns={row.longest} /> },
    {
      id: "choose",
      title: "What differs",
      align: "right",
      cell: (row) => (
        <Button kind="quiet" onClick={() => onBox(boxOf(map, { time: [row.time, row.time], duration: all }))}>
          Choose
        </Button>
      ),
    },
  ];
  return <Table label="Latency over time" columns={columns} rows={rowsOf(map)} rowKey={(row) => row.time} />;
}
