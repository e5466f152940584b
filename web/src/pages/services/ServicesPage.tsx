/** Services: rate, errors and durations by any attribute over time, and the map of who calls whom. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { complete } from "../../api/traceAnalysis";
import { useAnswer } from "../../api/useAnswer";
import { useAddress, type SetState } from "../../app/address";
import { boundsOf } from "../../app/range";
import {
  Button,
  Combobox,
  EmptyState,
  PageHead,
  Panel,
  RangePicker,
  Select,
  SendSpans,
  Shown,
  Tabs,
  wholeText,
} from "../../components";
import { nowNs } from "../../format/times";
import { suggestions } from "../traces/filter";
import { Charts } from "./Charts";
import { askFigures, COUNTED, COUNTED_NAMES, QUANTILES, shape, type FiguresState } from "./figures";
import { GroupTable } from "./GroupTable";
import { ServiceMap } from "./ServiceMap";
import "./services.css";

export default function ServicesPage() {
  const [state, set] = useAddress(shape);
  const [turn, setTurn] = useState(0);
  const { tab, sort, ...asked } = state;
  const question = Object.values(asked).join("\n");
  const now = useMemo(nowNs, [question, turn]);
  const figures = useAnswer((signal) => askFigures(state, now, signal), [question, now], { when: tab === "figures" });
  const zoom = (from: number, until: number) =>
    set(
      { start: BigInt(Math.floor(from)) * 1_000_000_000n, end: BigInt(Math.ceil(until)) * 1_000_000_000n },
      { push: true },
    );
  return (
    <>
      <PageHead title="Services" actions={<Button onClick={() => setTurn((before) => before + 1)}>Refresh</Button>} />
      <Panel>
        <Form state={state} set={set} />
      </Panel>
      <Tabs
        label="View"
        value={tab}
        onChange={(next) => set({ tab: next }, { push: true })}
        tabs={[
          { value: "figures", label: "Rate, errors, durations" },
          { value: "map", label: "Map" },
        ]}
      >
        {tab === "map" ? (
          <ServiceMap state={state} now={now} />
        ) : (
          <Shown
            of={figures}
            what="Counting"
            empty={(found) => found.groups.length === 0 && <Nothing state={state} set={set} />}
          >
            {(found) => (
              <>
                <Charts figures={found} state={state} onZoom={zoom} />
                {found.groups.length > found.drawn.length && (
                  <p class="hint">
                    The charts show the {found.drawn.length} most frequent of {found.groups.length}; the table has all.
                  </p>
                )}
                <Panel flush>
                  <GroupTable figures={found} state={state} onSort={(next) => set({ sort: next })} />
                </Panel>
              </>
            )}
          </Shown>
        )}
      </Tabs>
    </>
  );
}

function Form({ state, set }: { state: FiguresState; set: SetState<typeof shape> }) {
  const own = { service: state.service, by: state.by, q: state.q };
  const [typed, setTyped] = useState(own);
  useEffect(() => setTyped(own), Object.values(own));
  const type = (changes: Partial<typeof own>) => setTyped((before) => ({ ...before, ...changes }));
  const ask = (changes: Partial<FiguresState> = {}) => set({ ...typed, ...changes }, { push: true });
  const suggest = useMemo(() => {
    const { start, end } = boundsOf(state);
    const range = { start: start?.toString(), end: end?.toString() };
    const names = async (what: string, prefix: string, signal: AbortSignal) => {
      const found = await complete({ what, prefix, limit: 12, ...range }, signal);
      return found.map((each) => ({ text: String(each.value) }));
    };
    return {
      service: wholeText((prefix, signal) => names("service", prefix, signal)),
      by: wholeText(async (prefix, signal) => {
        const fields = ["service", "operation", "kind", "status", "model"].filter((each) => each.startsWith(prefix));
        return [...fields.map((text) => ({ text })), ...(await names("key", prefix, signal))].slice(0, 14);
      }),
      filter: suggestions({ service: typed.service || undefined, ...range }),
    };
  }, [typed.service, state.last, state.start, state.end]);
  return (
    <form
      class="form-row services-form"
      role="search"
      aria-label="Choose spans"
      onSubmit={(event) => {
        event.preventDefault();
        ask();
      }}
    >
      <Combobox
        label="Service"
        placeholder="All"
        value={typed.service}
        onInput={(service) => type({ service })}
        onChoose={(service) => ask({ service })}
        suggest={suggest.service}
      />
      {state.tab === "figures" && (
        <>
          <Combobox
            label="By"
            mono
            placeholder="service, operation, http.route"
            value={typed.by}
            onInput={(by) => type({ by })}
            onChoose={(by) => ask({ by })}
            suggest={suggest.by}
          />
          <Combobox
            label="Filter"
            class="grow"
            mono
            placeholder='http.route = "/checkout"'
            value={typed.q}
            onInput={(q) => type({ q })}
            suggest={suggest.filter}
          />
          <Select
            label="Count"
            value={state.of}
            onChange={(of) => ask({ of })}
            options={COUNTED.map((each) => [each, COUNTED_NAMES[each]] as const)}
          />
          <Select
            label="Duration"
            value={state.quantile}
            onChange={(quantile) => ask({ quantile })}
            options={QUANTILES}
          />
        </>
      )}
      <RangePicker range={state} onChange={(range) => ask(range)} />
      <Button kind="primary" type="submit">
        Show
      </Button>
    </form>
  );
}

function Nothing({ state, set }: { state: FiguresState; set: SetState<typeof shape> }) {
  const isNarrowed = !!(state.service || state.q || state.of !== "spans");
  return (
    <EmptyState title="No span matches">
      <div class="actions">
        <Button onClick={() => set({ last: "any", start: null, end: null }, { push: true })}>Look at any time</Button>
        {isNarrowed && (
          <Button onClick={() => set({ service: "", q: "", of: "spans" }, { push: true })}>Drop all conditions</Button>
        )}
      </div>
      {!isNarrowed && state.last === "any" && <SendSpans />}
    </EmptyState>
  );
}
