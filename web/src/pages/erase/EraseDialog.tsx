import { useRef, useState } from "preact/hooks";
import { eraseRows, eraseTraces, newErasureId, type FoundInTable, type FoundTraces } from "../../api/erasure";
import { asError, type ApiError } from "../../api/errors";
import { go, to } from "../../app/router";
import { Badge, Button, Dialog, ErrorBox, Progress, TextField } from "../../components";
import { counted } from "../../format/numbers";

interface Props {
  tables: readonly FoundInTable[];
  traces: FoundTraces | null;
  why: { actor: string; reason: string };
  onClose: () => void;
}

const WORD = "erase";
const TRACES = "Traces";

/** Says what will happen, asks for a word, erases place by place, and leads to the receipt. */
export function EraseDialog({ tables, traces, why, onClose }: Props) {
  const id = useRef(newErasureId()).current;
  const [typed, setTyped] = useState("");
  const [done, setDone] = useState<readonly string[]>([]);
  const [current, setCurrent] = useState<{ name: string; step: string; share: number } | undefined>();
  const [error, setError] = useState<{ name: string; error: ApiError } | undefined>();
  const places = [...tables.map((each) => each.table), ...(traces ? [TRACES] : [])];
  const busy = current !== undefined;

  const run = async () => {
    setError(undefined);
    const ended = [...done];
    for (const name of places) {
      if (ended.includes(name)) continue;
      const progress = (step: string, share: number) => setCurrent({ name, step, share });
      progress("start", 0);
      try {
        const table = tables.find((each) => each.table === name);
        if (table) await eraseRows(table, why, id, progress);
        else await eraseTraces(traces!, why, id, progress);
      } catch (thrown) {
        setCurrent(undefined);
        setError({ name, error: asError(thrown) });
        return;
      }
      ended.push(name);
      setDone([...ended]);
    }
    setCurrent(undefined);
    go(to("receipts", id));
  };
  const actions = (
    <>
      {error && done.length > 0 && (
        <a class="button" href={to("receipts", id)}>
          Receipt of what is done
        </a>
      )}
      <Button onClick={onClose} because={busy ? "Wait: leaving would stop the erasure in between" : undefined}>
        Cancel
      </Button>
      <Button
        kind="danger"
        busy={busy}
        because={typed.trim().toLowerCase() === WORD ? undefined : `Write ${WORD} into the field first`}
        onClick={() => void run()}
      >
        {error ? "Go on" : "Erase for good"}
      </Button>
    </>
  );
  return (
    <Dialog title="Erase for good?" onClose={() => !busy && onClose()} actions={actions}>
      <ul class="erase-places">
        {tables.map((each) => (
          <li key={each.table}>
            <State name={each.table} done={done} current={current?.name} /> {each.table}:{" "}
            {counted(each.keys.length, "row")}
          </li>
        ))}
        {traces && (
          <li>
            <State name={TRACES} done={done} current={current?.name} /> Traces: {counted(traces.traces, "trace")} with{" "}
            {counted(traces.spans, "span")} in all
          </li>
        )}
      </ul>
      <p>
        They are removed from every file, also of old versions, which then cannot be read any more, and every file is
        checked afterwards. Queries that read these tables at an old version end with an error. Backups and exported
        files are not reached. It cannot be undone.
      </p>
      {error && (
        <>
          <p>
            {error.name} failed{done.length > 0 && `; ${done.join(", ")} is done`}:
          </p>
          <ErrorBox error={error.error} />
        </>
      )}
      {current ? (
        <Progress share={current.share} label={`${current.name}: ${current.step}`} />
      ) : (
        <TextField label={`Write ${WORD} to confirm`} value={typed} onInput={setTyped} autocomplete="off" />
      )}
    </Dialog>
  );
}

function State({ name, done, current }: { name: string; done: readonly string[]; current: string | undefined }) {
  if (done.includes(name)) return <Badge tone="ok">erased</Badge>;
  return current === name ? <Badge tone="running">now</Badge> : <Badge>to do</Badge>;
}
