import { useEffect, useState } from "preact/hooks";
import { searchTraces, type TracePage } from "../../api/traces";
import { useAnswer } from "../../api/useAnswer";
import { Button } from "../../components";
import { count, counted } from "../../format/numbers";
import { queryOf, type SearchState } from "./search";

interface Props {
  state: SearchState;
  asOf: bigint;
  page: TracePage | undefined;
}

/** How many traces match. A count reads all of them, so for more than a page it is made when one asks for it. */
export function TotalOf({ state, asOf, page }: Props) {
  const [wanted, setWanted] = useState(false);
  useEffect(() => setWanted(false), [asOf]);
  const query = { ...queryOf(state, asOf), limit: 1, cursor: undefined, count: true };
  const answer = useAnswer((signal) => searchTraces(query, signal), [asOf], { when: wanted });
  if (!page) return <>Traces</>;
  const isAll = !page.next_cursor && !page.previous_cursor;
  if (isAll) return <>{counted(page.traces.length, "trace")}</>;
  const total = wanted ? answer.data?.total : undefined;
  if (total !== undefined && total !== null) return <>{counted(total, "trace")}</>;
  return (
    <>
      More than {count(page.traces.length)} traces{" "}
      <Button
        kind="quiet"
        busy={wanted && answer.loading}
        title={answer.error?.message}
        onClick={() => setWanted(true)}
      >
        {answer.error ? "Count failed: try again" : "Count them"}
      </Button>
    </>
  );
}
