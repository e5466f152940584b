import { useMemo } from "preact/hooks";
import { Panel, TimeChart, type Series } from "../../components";
import { digits, duration } from "../../format/numbers";
import type { Figures, FiguresState, Group } from "./figures";

const perSecond = (value: number) => `${digits(value)}/s`;
const perMinute = (value: number) => `${digits(value)}/min`;
const inPercent = (value: number) => `${digits(value)} %`;

interface Props {
  figures: Figures;
  state: FiguresState;
  onZoom: (from: number, until: number) => void;
}

/** Rate, errors and durations over time, a line for each group. */
export function Charts({ figures, state, onZoom }: Props) {
  const { times, drawn } = figures;
  const lines = useMemo(() => {
    const of = (values: (group: Group) => (number | null)[]): Series[] =>
      drawn.map((group) => ({ label: group.name, values: values(group), colour: group.colour }));
    const often = drawn.some((group) => group.rates.some((each) => each !== null && each >= 1));
    const times = often ? 1 : 60;
    return {
      often,
      rates: of((group) => group.rates.map((each) => each && each * times)),
      errors: of((group) => group.errorRates),
      durations: of((group) => group.durations),
    };
  }, [figures]);
  const what = state.of === "traces" ? "Traces" : "Spans";
  const charts = [
    {
      title: `${what} per ${lines.often ? "second" : "minute"}`,
      series: lines.rates,
      format: lines.often ? perSecond : perMinute,
    },
    { title: "Share with errors", series: lines.errors, format: inPercent },
    { title: `Duration, ${state.quantile}`, series: lines.durations, format: duration },
  ];
  return (
    <div class="three-charts">
      {charts.map(({ title, series, format }) => (
        <Panel key={title} title={title}>
          <TimeChart label={title} times={times} series={series} format={format} height={170} onZoom={onZoom} />
        </Panel>
      ))}
    </div>
  );
}
