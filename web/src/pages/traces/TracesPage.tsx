/** Traces: search by a form and a filter, results as latency over time and as a list. All of it is in the address. */

import { useMemo, useState } from "preact/hooks";
import { searchTraces } from "../../api/traces";
import { useAnswer } from "../../api/useAnswer";
import { useAddress } from "../../app/address";
import { useKeys } from "../../app/keys";
import { to } from "../../app/router";
import { Button, Code, Dialog, PageHead, Panel, SavedViews, Shown } from "../../components";
import { nowNs } from "../../format/times";
import { Latency } from "./Latency";
import { LiveTail } from "./LiveTail";
import { NothingFound } from "./NothingFound";
import { Pager, ResultList } from "./ResultList";
import { queryOf, shape } from "./search";
import { SearchForm } from "./SearchForm";
import { sqlOf } from "./sql";
import { TotalOf } from "./TotalOf";
import "./traces.css";

const NOT_SAVED = ["cursor", "at", "pick", "live"];

export default function TracesPage() {
  const [state, set] = useAddress(shape);
  const [turn, setTurn] = useState(0);
  const [asSql, setAsSql] = useState(false);
  const { cursor, at, pick, box, heat, live, ...asked } = state;
  const search = JSON.stringify(asked, (_key, value: unknown) => (typeof value === "bigint" ? String(value) : value));
  // "The last hour" means the same on all pages of one search.
  const asOf = useMemo(nowNs, [search, turn, cursor === ""]);
  const found = useAnswer((signal) => searchTraces(queryOf(state, asOf), signal), [search, cursor, at, asOf], {
    when: !live,
  });
  useKeys("Traces", [
    {
      key: "f",
      about: "Write a filter",
      run: () => document.querySelector<HTMLElement>(".search-form .grow input")?.focus(),
    },
    { key: "l", about: "Live, or stop", run: () => set({ live: !live }, { push: true }) },
    { key: "r", about: "Search again", run: () => setTurn((before) => before + 1) },
  ]);
  return (
    <>
      <PageHead
        title="Traces"
        actions={
          <>
            {pick.length > 0 && <Compare picked={pick} />}
            <Button onClick={() => setAsSql(true)}>As SQL</Button>
            <SavedViews kind="traces" path="traces" leaveOut={NOT_SAVED} />
          </>
        }
      />
      <Panel>
        <SearchForm state={state} set={set} onSearch={() => setTurn((before) => before + 1)} />
      </Panel>
      {asSql && <AsSql sql={sqlOf(state, at ?? asOf)} onClose={() => setAsSql(false)} />}
      {live ? (
        <LiveTail state={state} set={set} />
      ) : (
        <>
          <Latency state={state} set={set} asOf={asOf} />
          <Panel
            flush
            title={<TotalOf state={state} asOf={asOf} page={found.data} />}
            actions={<Button onClick={() => set({ live: true }, { push: true })}>Live</Button>}
          >
            <Shown
              of={found}
              what="Searching"
              empty={(page) => page.traces.length === 0 && <NothingFound state={state} set={set} />}
            >
              {(page) => (
                <>
                  <ResultList
                    label="Traces"
                    traces={page.traces}
                    picked={pick}
                    onPick={(next) => set({ pick: next })}
                  />
                  <Pager page={page} state={state} set={set} asOf={asOf} />
                </>
              )}
            </Shown>
          </Panel>
        </>
      )}
    </>
  );
}

function Compare({ picked }: { picked: readonly string[] }) {
  const [a, b] = picked;
  if (!b) return <span class="hint">Choose a second trace to compare</span>;
  return (
    <a class="button" href={to("traces", "compare", { a, b })}>
      Compare the two
    </a>
  );
}

function AsSql({ sql, onClose }: { sql: string; onClose: () => void }) {
  return (
    <Dialog
      title="This search as SQL"
      wide
      onClose={onClose}
      actions={
        <a class="button primary" href={to("sql", { q: sql })}>
          Open in the editor
        </a>
      }
    >
      <Code text={sql} label="SQL" />
    </Dialog>
  );
}
