/** SQL: an editor with completion, results of any size, charts, exports, and how a statement is answered. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { EXPORTS, download, exportSql, type Engine, type ExportForm } from "../../api/sql";
import { asError } from "../../api/errors";
import { useAnswer } from "../../api/useAnswer";
import { choice, text, useAddress, whole } from "../../app/address";
import { useKeys } from "../../app/keys";
import { place } from "../../app/router";
import { Button, Menu, PageHead, Select, toast } from "../../components";
import { bytes } from "../../format/numbers";
import { readCatalogue, TablesSide } from "./TablesSide";
import { Editor } from "./Editor";
import type { SqlEditor } from "./editor";
import { HistoryDialog } from "./HistoryDialog";
import { ResultPanel, VIEWS } from "./ResultPanel";
import { newSheet, setSheets, sheets, titleOf, type Sheet } from "./sheets";
import { useRuns } from "./useRuns";
import "./sql.css";

// Longer statements stay out of the address, which servers and proxies cut.
const LONGEST_IN_ADDRESS = 2_000;
const ENGINES = ["auto", "hot", "local", "spark"] as const;
const LIMITS = [1_000, 10_000, 100_000, 1_000_000, 5_000_000] as const;

/** Finds the sheet of a statement that a link brought, or makes one. */
function opened(sql: string): string {
  const found = sheets.value.find((sheet) => sheet.sql === sql);
  if (found || !sql) return found?.id ?? sheets.value[sheets.value.length - 1]!.id;
  const made = newSheet(sql);
  setSheets([...sheets.value.filter((sheet) => sheet.sql.trim()), made]);
  return made.id;
}

export default function SqlPage() {
  const [state, set] = useAddress({
    q: text(),
    engine: choice(ENGINES),
    rows: whole(10_000),
    view: choice(VIEWS),
    run: text(),
  });
  const [active, setActive] = useState(() => opened(state.q));
  const [history, setHistory] = useState(false);
  const editor = useRef<SqlEditor | null>(null);
  const runs = useRuns();
  const catalogue = useAnswer(readCatalogue, []);
  const completed = useMemo(() => catalogue.data ?? {}, [catalogue.data]);
  const sheet = sheets.value.find((each) => each.id === active) ?? sheets.value[0]!;
  const run = runs.of(sheet.id);
  const isRunning = run !== undefined && run.progress !== undefined && run.ms === undefined;

  const written = useRef(state.q);
  const inAddress = (sql: string) => (written.current = sql.length <= LONGEST_IN_ADDRESS ? sql : "");

  // A link to another statement, or the back button, while the page is open.
  useEffect(() => {
    // The address as it is now: while a person types, what was rendered is older.
    const now = place.value.query.get("q") ?? "";
    if (now && now !== written.current) setActive(opened(inAddress(now)));
  }, [state.q]);

  const change = (sql: string) => {
    setSheets(sheets.value.map((each) => (each.id === sheet.id ? { ...each, sql } : each)));
    set({ q: inAddress(sql) });
  };
  const show = (next: Sheet) => {
    setActive(next.id);
    set({ q: inAddress(next.sql), view: "rows" });
  };
  const start = (maxRows = state.rows) => {
    const sql = editor.current?.chosen() ?? sheet.sql;
    if (!sql.trim()) {
      toast("Write a statement first", "error");
      return;
    }
    if (state.view === "explain") set({ view: "rows" });
    void runs.start(sheet.id, { sql, engine: state.engine, maxRows });
  };
  const close = (closed: Sheet) => {
    const at = sheets.value.indexOf(closed);
    const rest = sheets.value.filter((each) => each !== closed);
    const next = rest.length ? rest : [newSheet()];
    setSheets(next);
    if (closed.id === sheet.id) show(next[Math.min(at, next.length - 1)]!);
  };
  const add = () => {
    const made = newSheet();
    setSheets([...sheets.value, made]);
    show(made);
    editor.current?.focus();
  };
  useKeys("SQL", [
    { key: "Ctrl+Enter", about: "Run the statement, or what is selected of it", run: () => start(), inFields: true },
    { key: "e", about: "Go to the editor", run: () => editor.current?.focus() },
    { key: "Escape", about: "Cancel the statement that runs", run: () => void runs.cancel(sheet.id) },
  ]);
  return (
    <>
      <PageHead title="SQL" actions={<Button onClick={() => setHistory(true)}>History</Button>} />
      <div class="sql">
        <TablesSide catalogue={catalogue} insert={(name) => editor.current?.insert(name)} />
        <div class="sql-main">
          <SheetBar active={sheet} show={show} close={close} add={add} />
          <Editor
            sheet={sheet.id}
            text={sheet.sql}
            catalogue={completed}
            onChange={change}
            onRun={() => start()}
            onReady={(made) => {
              editor.current = made;
              made.focus();
            }}
          />
          <div class="sql-bar">
            {isRunning ? (
              <Button kind="danger" busy={run.cancelling ?? false} onClick={() => void runs.cancel(sheet.id)}>
                {run.cancelling ? "Cancelling…" : "Cancel"}
              </Button>
            ) : (
              <Button kind="primary" title="Ctrl+Enter" onClick={() => start()}>
                Run
              </Button>
            )}
            <Button onClick={() => set({ view: "explain" }, { push: true })}>Explain</Button>
            <ExportMenu sql={() => editor.current?.chosen() ?? sheet.sql} engine={state.engine} />
            <Select
              label="Engine"
              hideLabel
              value={state.engine}
              onChange={(engine) => set({ engine })}
              options={[
                ["auto", "best engine"],
                ["hot", "in memory"],
                ["local", "in the server"],
                ["spark", "Spark"],
              ]}
            />
            <Select
              label="Most rows to show"
              hideLabel
              value={String(state.rows)}
              onChange={(rows) => set({ rows: Number(rows) })}
              options={LIMITS.map((each) => [String(each), `up to ${each.toLocaleString("en")} rows`] as const)}
            />
            <span class="hint keys-hint">Ctrl+Enter runs it</span>
          </div>
          <ResultPanel
            key={sheet.id}
            run={run}
            sql={sheet.sql}
            engine={state.engine}
            view={state.view}
            setView={(view) => set({ view }, { push: true })}
            more={(rows) => {
              set({ rows });
              start(rows);
            }}
          />
        </div>
      </div>
      {history && (
        <HistoryDialog
          onClose={() => setHistory(false)}
          onChoose={(sql) => {
            setHistory(false);
            const made = newSheet(sql);
            setSheets([...sheets.value.filter((each) => each.sql.trim()), made]);
            show(made);
          }}
        />
      )}
    </>
  );
}

interface SheetBarProps {
  active: Sheet;
  show: (sheet: Sheet) => void;
  close: (sheet: Sheet) => void;
  add: () => void;
}

function SheetBar({ active, show, close, add }: SheetBarProps) {
  return (
    <ul class="sheets" aria-label="Statements">
      {sheets.value.map((sheet, place) => {
        const title = titleOf(sheet, place);
        return (
          <li key={sheet.id} class={sheet.id === active.id ? "sheet active" : "sheet"}>
            <button
              type="button"
              aria-current={sheet.id === active.id ? "true" : undefined}
              title={sheet.sql.slice(0, 300)}
              onClick={() => show(sheet)}
            >
              {title}
            </button>
            <button type="button" class="sheet-close" aria-label={`Close ${title}`} onClick={() => close(sheet)}>
              ×
            </button>
          </li>
        );
      })}
      <li class="sheet-add">
        <button type="button" aria-label="New statement" onClick={add}>
          +
        </button>
      </li>
    </ul>
  );
}

function ExportMenu({ sql, engine }: { sql: () => string; engine: Engine }) {
  const [size, setSize] = useState<number | null>(null);
  const save = async (form: ExportForm) => {
    const statement = sql();
    if (!statement.trim()) return;
    setSize(0);
    try {
      const content = await exportSql(statement, engine, form, setSize);
      download(content, `result.${EXPORTS[form].ending}`);
      toast(`${bytes(content.size)} saved as ${EXPORTS[form].label}`);
    } catch (thrown) {
      toast(asError(thrown).message, "error");
    } finally {
      setSize(null);
    }
  };
  return size === null ? (
    <Menu
      label="Export"
      items={(Object.keys(EXPORTS) as ExportForm[]).map((form) => ({
        label: `${EXPORTS[form].label}, all rows`,
        run: () => void save(form),
      }))}
    />
  ) : (
    <Button busy>{`Saving… ${bytes(size)}`}</Button>
  );
}
