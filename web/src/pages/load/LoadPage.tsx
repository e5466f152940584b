/** Load a file: drop it, see what is in it, choose table and key, load it. */

import { useRef, useState } from "preact/hooks";
import { asError, isAbort, type ApiError } from "../../api/errors";
import { loadFile, type LoadOptions, type LoadProgress, type LoadReport } from "../../api/load";
import { may } from "../../api/session";
import { listTables } from "../../api/tables";
import { useAnswer } from "../../api/useAnswer";
import { text, useAddress } from "../../app/address";
import { to } from "../../app/router";
import { Button, Checkbox, ErrorBox, PageHead, Panel, Progress, TextField } from "../../components";
import { bytes, counted, duration } from "../../format/numbers";
import { DropBox } from "./DropBox";
import { Found } from "./Found";
import "./load.css";

const NAME = /^[A-Za-z0-9-][\w-]*\.[A-Za-z0-9-][\w-]*\.[A-Za-z0-9-][\w-]*$/;

interface Choices {
  key: string[];
  types: Record<string, string>;
  evolve: boolean;
  ignoreExtra: boolean;
  skipBad: boolean;
  again: boolean;
  flatten: boolean;
}

const FIRST: Choices = {
  key: [],
  types: {},
  evolve: false,
  ignoreExtra: false,
  skipBad: false,
  again: false,
  flatten: false,
};
// More than any file has: all bad rows are left out, and counted.
const ANY_NUMBER = 1_000_000_000;

function optionsOf(choices: Choices, create: boolean, dryRun: boolean): LoadOptions {
  const types = Object.entries(choices.types).map(([column, type]) => `${column}=${type}`);
  return {
    create: create || undefined,
    key: create ? choices.key : [],
    types: create && types.length ? types.join(",") : undefined,
    evolve: choices.evolve || undefined,
    ignore_extra: choices.ignoreExtra || undefined,
    max_bad: choices.skipBad ? ANY_NUMBER : undefined,
    again: choices.again || undefined,
    flatten: choices.flatten || undefined,
    dry_run: dryRun || undefined,
  };
}

/** A name for the table of a file: `My Orders (2).csv` becomes `my_orders_2`. */
function suggested(file: File): string {
  const plain = file.name.replace(/(\.[A-Za-z0-9]+){1,2}$/, "").toLowerCase();
  return `files.loaded.${plain.replace(/[^a-z0-9]+/g, "_").replace(/^_+|_+$/g, "") || "table"}`;
}

export default function LoadPage() {
  const [state, set] = useAddress({ table: text() });
  const [file, setFile] = useState<File | null>(null);
  const [choices, setChoices] = useState(FIRST);
  const [found, setFound] = useState<LoadReport | null>(null);
  const [result, setResult] = useState<LoadReport | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const [progress, setProgress] = useState<(LoadProgress & { dryRun: boolean }) | null>(null);
  const control = useRef<AbortController | null>(null);
  const tables = useAnswer((signal) => listTables(false, signal), [result?.created]);
  const exists = tables.data?.includes(state.table) ?? false;
  const isName = NAME.test(state.table);

  const send = async (dryRun: boolean, given: File, table: string, chosen: Choices) => {
    control.current?.abort();
    const own = (control.current = new AbortController());
    const create = !(tables.data?.includes(table) ?? false);
    setError(null);
    setResult(null);
    if (dryRun) setFound(null);
    setProgress({ step: "sending", share: 0, dryRun });
    try {
      const tell = (each: LoadProgress) => !own.signal.aborted && setProgress({ ...each, dryRun });
      const report = await loadFile(table, given, optionsOf(chosen, create, dryRun), tell, own.signal);
      if (dryRun) setFound(report);
      else setResult(report);
    } catch (thrown) {
      if (!isAbort(thrown)) setError(asError(thrown));
    } finally {
      if (control.current === own) setProgress(null);
    }
  };
  const choose = (given: File) => {
    const table = isName ? state.table : suggested(given);
    setFile(given);
    setChoices(FIRST);
    if (table !== state.table) set({ table });
    void send(true, given, table, FIRST);
  };
  const change = (next: Partial<Choices>) => {
    const all = { ...choices, ...next };
    setChoices(all);
    if (file && isName) void send(true, file, state.table, all);
  };
  const because = !isName
    ? "A table is catalog.schema.table: letters, digits, _ and -"
    : !may(exists && !choices.evolve ? "write" : "admin", state.table)
      ? `Your token has no right to ${exists ? "change" : "create"} this table`
      : undefined;
  return (
    <>
      <PageHead title="Load a file" />
      <DropBox file={file} onFile={choose} />
      {file && (
        <Panel title="Into which table">
          <div class="form-row">
            <TextField
              label="Table"
              class="mono"
              value={state.table}
              spellcheck={false}
              suggestions={tables.data ?? []}
              onInput={(table) => set({ table })}
              onBlur={() => !result && isName && void send(true, file, state.table, choices)}
              error={isName ? undefined : "A table is catalog.schema.table: letters, digits, _ and -"}
              hint={
                exists
                  ? "It exists: rows are added; in a table with a key they replace those of their key."
                  : "It will be created."
              }
            />
          </div>
          <div class="load-choices">
            {exists && (
              <>
                <Checkbox
                  label="Add columns and widen types where the file needs it"
                  checked={choices.evolve}
                  onChange={(evolve) => change({ evolve })}
                />
                <Checkbox
                  label="Leave out columns that the table does not have"
                  checked={choices.ignoreExtra}
                  onChange={(ignoreExtra) => change({ ignoreExtra })}
                />
              </>
            )}
            <Checkbox
              label="Leave out bad rows, and load the others"
              checked={choices.skipBad}
              onChange={(skipBad) => change({ skipBad })}
            />
            <Checkbox
              label="Make columns of nested objects"
              checked={choices.flatten}
              onChange={(flatten) => change({ flatten })}
            />
            <Checkbox
              label="Load it again, even if it was loaded before"
              checked={choices.again}
              onChange={(again) => change({ again })}
            />
          </div>
        </Panel>
      )}
      {progress && (
        <Panel>
          <Progress
            share={progress.share}
            label={`${progress.dryRun ? "Looking through" : "Loading"} ${file?.name ?? ""}: ${progress.step}`}
          />
          <Button kind="quiet" onClick={() => control.current?.abort()}>
            Stop
          </Button>
        </Panel>
      )}
      {error && <ErrorBox error={error} />}
      {found && !result && (
        <Found
          report={found}
          exists={exists}
          keys={choices.key}
          types={choices.types}
          setKeys={(key) => change({ key })}
          setType={(column, type) => change({ types: { ...choices.types, [column]: type } })}
        />
      )}
      {file && !result && (
        <div class="load-foot">
          <Button
            kind="primary"
            because={
              because ??
              (!found
                ? "Wait until the file was looked through"
                : found.drift.some((drift) => !drift.done)
                  ? "Columns differ from those of the table: say above what becomes of them"
                  : found.bad_rows && !choices.skipBad
                    ? "There are bad rows: leave them out, or mend the file"
                    : undefined)
            }
            disabled={progress !== null}
            onClick={() => void send(false, file, state.table, choices)}
          >
            {found ? `Load ${counted(found.rows, "row")}` : "Load"}
          </Button>
        </div>
      )}
      {result && <Done report={result} again={() => setFile(null)} />}
    </>
  );
}

function Done({ report, again }: { report: LoadReport; again: () => void }) {
  return (
    <Panel title={report.duplicate ? "This file was loaded before" : "Loaded"}>
      <div role="status">
        <p class="load-result">
          <strong>{counted(report.rows, "row")}</strong> {report.created ? "in the new table" : "added to"}{" "}
          <a href={to("tables", report.table)}>{report.table}</a>, {bytes(report.bytes)} in{" "}
          {duration(report.seconds * 1e9)}.
        </p>
        {report.duplicate_rows > 0 && (
          <p>There already, and not stored twice: {counted(report.duplicate_rows, "row")}.</p>
        )}
        {report.bad_rows > 0 && <p>Left out: {counted(report.bad_rows, "bad row")}.</p>}
      </div>
      <div class="load-foot">
        <a class="button primary" href={to("tables", report.table)}>
          Look at the rows
        </a>
        <Button
          onClick={() => {
            again();
          }}
        >
          Load another file
        </Button>
      </div>
    </Panel>
  );
}
