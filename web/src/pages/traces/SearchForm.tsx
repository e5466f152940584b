import { useEffect, useMemo, useState } from "preact/hooks";
import { complete } from "../../api/traceAnalysis";
import { boundsOf } from "../../app/range";
import { Button, Checkbox, Combobox, RangePicker, Select, TextField, wholeText } from "../../components";
import { shortCount } from "../../format/numbers";
import { suggestions } from "./filter";
import { ORDER_NAMES, ORDERS, readDuration, type SearchState, type SetSearch } from "./search";

const WRONG = "Write it as 250ms, 1.5s or 2m.";

interface Props {
  state: SearchState;
  set: SetSearch;
  /** Asks again, also if nothing changed. */
  onSearch: () => void;
}

/** The form of a search. Choices count at once; what one types counts with Enter or the button. */
export function SearchForm({ state, set, onSearch }: Props) {
  const [typed, setTyped] = useState(() => typedOf(state));
  const own = typedOf(state);
  // The back button, a saved search or a click elsewhere on the page changes what is asked for.
  useEffect(() => setTyped(own), Object.values(own));
  const type = (changes: Partial<typeof typed>) => setTyped((before) => ({ ...before, ...changes }));
  const wrong = [typed.min, typed.max].map((each) => (readDuration(each) === null ? WRONG : undefined));
  const search = (changes: Partial<SearchState> = {}) => {
    if (wrong.some(Boolean)) return;
    set({ ...typed, cursor: "", at: null, box: "", ...changes }, { push: true });
    onSearch();
  };
  const { start, end } = boundsOf(state);
  const range = { start: start?.toString(), end: end?.toString() };
  const suggest = useMemo(() => {
    const names = (what: string, service?: string) =>
      wholeText(async (prefix, signal) => {
        const found = await complete({ what, prefix, service, limit: 12, ...range }, signal);
        return found.map((each) => ({ text: String(each.value), note: `${shortCount(each.count)} spans` }));
      });
    return {
      service: names("service"),
      operation: names("operation", typed.service || undefined),
      filter: suggestions({ service: typed.service || undefined, operation: typed.operation || undefined, ...range }),
    };
  }, [typed.service, typed.operation, state.last, state.start, state.end]);
  return (
    <form
      class="search-form"
      role="search"
      aria-label="Search traces"
      onSubmit={(event) => {
        event.preventDefault();
        search();
      }}
    >
      <div class="form-row">
        <Combobox
          label="Service"
          placeholder="Any"
          value={typed.service}
          onInput={(service) => type({ service })}
          onChoose={(service) => search({ service })}
          suggest={suggest.service}
        />
        <Combobox
          label="Operation"
          placeholder="Any"
          value={typed.operation}
          onInput={(operation) => type({ operation })}
          onChoose={(operation) => search({ operation })}
          suggest={suggest.operation}
        />
        <Combobox
          label="Filter"
          class="grow"
          mono
          placeholder='http.route = "/checkout" and duration > 100ms'
          value={typed.q}
          onInput={(q) => type({ q })}
          suggest={suggest.filter}
        />
        <RangePicker range={state} onChange={(next) => search(next)} />
      </div>
      <div class="form-row">
        <Select
          label="Duration of"
          value={state.of}
          onChange={(of) => search({ of })}
          options={[
            ["trace", "the whole trace"],
            ["span", "one matching span"],
          ]}
        />
        <TextField
          label="At least"
          placeholder="100ms"
          value={typed.min}
          onInput={(min) => type({ min })}
          error={wrong[0]}
        />
        <TextField
          label="At most"
          placeholder="5s"
          value={typed.max}
          onInput={(max) => type({ max })}
          error={wrong[1]}
        />
        <Select
          label="Order"
          value={state.order}
          onChange={(order) => search({ order })}
          options={ORDERS.map((each) => [each, ORDER_NAMES[each]] as const)}
        />
        <Checkbox label="With errors" checked={state.errors} onChange={(errors) => search({ errors })} />
        <Button kind="primary" type="submit">
          Search
        </Button>
      </div>
    </form>
  );
}

function typedOf(state: SearchState) {
  return { service: state.service, operation: state.operation, q: state.q, min: state.min, max: state.max };
}
