import { useState } from "preact/hooks";
import { differences, type Differences, type KeyDifference, type SpanSelection } from "../../api/traceAnalysis";
import { useAnswer } from "../../api/useAnswer";
import { Button, EmptyState, Panel, Shown } from "../../components";
import { count, percent } from "../../format/numbers";
import { bothOf, writtenKey, writtenValue } from "./filter";
import { nameOfBox, type Box } from "./heat";
import type { SearchState, SetSearch } from "./search";

const KEYS = 6;
const VALUES = 4;
/** Differences below this are noise. */
const LEAST = 0.02;

interface Props {
  selection: SpanSelection;
  box: Box;
  state: SearchState;
  set: SetSearch;
}

/** What sets the spans of a box apart from the others of the search: the keys whose values differ most. */
export function DifferencesPanel({ selection, box, state, set }: Props) {
  const asked = {
    ...selection,
    selected_start: box.start.toString(),
    selected_end: box.end.toString(),
    min_duration_ms: Number(box.shortest) / 1e6,
    // The server includes the bound.
    max_duration_ms: Number(box.longest - 1n) / 1e6,
    limit: 30,
    values: VALUES,
  };
  const found = useAnswer((signal) => differences(asked, signal), [JSON.stringify(asked)]);
  const [all, setAll] = useState(false);
  const narrow = (condition: string) =>
    set({ q: bothOf(state.q, condition), box: "", cursor: "", at: null }, { push: true });
  const within = () =>
    set(
      {
        q: /\broot\b/.test(selection.where ?? "") && !/\broot\b/.test(state.q) ? bothOf(state.q, "root") : state.q,
        start: box.start,
        end: box.end,
        of: "span",
        min: `${Number(box.shortest)}ns`,
        max: `${Number(box.longest - 1n)}ns`,
        box: "",
        cursor: "",
        at: null,
      },
      { push: true },
    );
  return (
    <Panel
      title="What differs in the box"
      actions={
        <>
          <Button onClick={within}>Search in the box</Button>
          <Button kind="quiet" onClick={() => set({ box: "" }, { push: true })}>
            Remove the box
          </Button>
        </>
      }
    >
      <Shown
        of={found}
        what="Comparing"
        empty={(answer) => differing(answer).length === 0 && <Nothing answer={answer} />}
      >
        {(answer) => {
          const keys = differing(answer);
          return (
            <>
              <p class="hint">
                {nameOfBox(box)}: {count(answer.selected)} spans, against {count(answer.others)} others of this search.
                {answer.sampled_others + answer.sampled_selected < answer.selected + answer.others && " By samples."}
              </p>
              <div class="legend hint" aria-hidden="true">
                <span class="share inside" /> in the box <span class="share outside" /> others
              </div>
              <div class="differences">
                {keys.slice(0, all ? undefined : KEYS).map((key) => (
                  <KeyCard key={`${key.level}.${key.key}`} of={key} answer={answer} onNarrow={narrow} />
                ))}
              </div>
              {keys.length > KEYS && !all && (
                <Button kind="quiet" onClick={() => setAll(true)}>
                  Show all {keys.length}
                </Button>
              )}
            </>
          );
        }}
      </Shown>
    </Panel>
  );
}

function differing(answer: Differences): KeyDifference[] {
  return answer.keys.filter((key) => key.difference >= LEAST);
}

function Nothing({ answer }: { answer: Differences }) {
  return (
    <EmptyState title={answer.selected === 0 ? "No span is in the box" : "Nothing differs"}>
      <p>
        {answer.selected === 0
          ? "Drag it around coloured cells."
          : answer.others === 0
            ? "All spans of the search are in the box: choose fewer."
            : "The spans in the box have the same attributes as the others."}
      </p>
    </EmptyState>
  );
}

interface CardProps {
  of: KeyDifference;
  answer: Differences;
  onNarrow: (condition: string) => void;
}

function KeyCard({ of, answer, onNarrow }: CardProps) {
  const [inside, outside] = [Math.max(1, answer.sampled_selected), Math.max(1, answer.sampled_others)];
  const missing = [of.missing_selected / inside, of.missing_others / outside] as const;
  const more = of.distinct - of.values.length;
  return (
    <section class="difference" aria-label={of.key}>
      <h3>
        <span class="mono">{of.key}</span> <span class="hint">{of.level === "field" ? "" : of.level}</span>
      </h3>
      <ul>
        {of.values.map((each) => (
          <ValueRow
            key={JSON.stringify(each.value, (_key, inner: unknown) =>
              typeof inner === "bigint" ? String(inner) : inner,
            )}
            name={shownValue(each.value)}
            shares={[each.selected / inside, each.others / outside]}
            condition={conditionOf(of, each.value)}
            onNarrow={onNarrow}
          />
        ))}
        {missing[0] + missing[1] > 0 && of.level !== "field" && (
          <ValueRow
            name="without it"
            shares={missing}
            condition={`not ${keyOf(of)} exists`}
            onNarrow={onNarrow}
            quiet
          />
        )}
      </ul>
      {more > 0 && <p class="hint">and {count(more)} other values</p>}
    </section>
  );
}

interface ValueProps {
  name: string;
  shares: readonly [number, number];
  condition: string | null;
  onNarrow: (condition: string) => void;
  quiet?: boolean;
}

function ValueRow({ name, shares, condition, onNarrow, quiet }: ValueProps) {
  const [inside, outside] = shares;
  const text = `${percent(inside)} in the box, ${percent(outside)} of the others`;
  return (
    <li>
      <div class="value-head">
        {condition ? (
          <button
            type="button"
            class={`link${quiet ? " quiet" : ""}`}
            title={`Add ${condition} to the filter`}
            onClick={() => onNarrow(condition)}
          >
            {name}
          </button>
        ) : (
          <span>{name}</span>
        )}
        <span class="hint number" title={text}>
          {percent(inside)} <span class="visually-hidden">in the box,</span>
          <span aria-hidden="true"> / </span>
          {percent(outside)} <span class="visually-hidden">of the others</span>
        </span>
      </div>
      <div class="share-track" aria-hidden="true">
        <span class="share inside" style={{ width: `${inside * 100}%` }} />
        <span class="share outside" style={{ width: `${outside * 100}%` }} />
      </div>
    </li>
  );
}

function shownValue(value: unknown): string {
  if (typeof value === "string") return value === "" ? "(empty)" : value;
  return JSON.stringify(value, (_key, inner: unknown) => (typeof inner === "bigint" ? String(inner) : inner));
}

function keyOf(of: KeyDifference): string {
  return of.level === "field" ? of.key : `${of.level}.${writtenKey(of.key)}`;
}

function conditionOf(of: KeyDifference, value: unknown): string | null {
  if (of.level === "field" && (of.key === "kind" || of.key === "status")) {
    return /^\w+$/.test(String(value)) ? `${of.key} = ${String(value).toLowerCase()}` : null;
  }
  // The server cuts long values to a mark.
  const written = value === "…" ? null : writtenValue(value);
  return written === null ? null : `${keyOf(of)} = ${written}`;
}
