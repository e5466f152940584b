import { searchTraces } from "../../api/traces";
import { useAnswer } from "../../api/useAnswer";
import { nameOfRange } from "../../app/range";
import { Button, EmptyState, Loading, SendSpans } from "../../components";
import { isFiltered, type SearchState, type SetSearch } from "./search";

/** Nothing matches: because there is nothing at all, nothing in that time, or nothing of that kind. */
export function NothingFound({ state, set }: { state: SearchState; set: SetSearch }) {
  const any = useAnswer((signal) => searchTraces({ limit: 1 }, signal), []);
  if (any.loading) return <Loading />;
  if (any.data?.traces.length === 0) {
    return (
      <EmptyState title="No spans have arrived yet">
        <SendSpans />
      </EmptyState>
    );
  }
  const range = nameOfRange(state);
  return (
    <EmptyState title="No trace matches">
      <p>
        {isFiltered(state) ? "One span must meet all conditions at once. " : "Nothing started then. "}
        Time: {range}.
      </p>
      <div class="actions">
        {(state.last !== "any" || state.start !== null || state.end !== null) && (
          <Button
            onClick={() => set({ last: "any", start: null, end: null, cursor: "", at: null, box: "" }, { push: true })}
          >
            Search any time
          </Button>
        )}
        {isFiltered(state) && (
          <Button
            onClick={() =>
              set(
                { service: "", operation: "", q: "", text: "", errors: false, min: "", max: "", cursor: "", at: null },
                { push: true },
              )
            }
          >
            Drop all conditions
          </Button>
        )}
      </div>
    </EmptyState>
  );
}
