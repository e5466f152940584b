import { useState } from "preact/hooks";
import { Ago, Badge, Button, Dialog, EmptyState, TextField } from "../../components";
import { counted, duration } from "../../format/numbers";
import { clearRan, ran } from "./sheets";

/** What was run in this browser, newest first. */
export function HistoryDialog({ onClose, onChoose }: { onClose: () => void; onChoose: (sql: string) => void }) {
  const [words, setWords] = useState("");
  const found = ran.value.filter((each) => each.sql.toLowerCase().includes(words.toLowerCase()));
  return (
    <Dialog
      title="Statements you ran"
      wide
      onClose={onClose}
      actions={
        ran.value.length > 0 && (
          <Button kind="quiet" onClick={clearRan}>
            Forget them all
          </Button>
        )
      }
    >
      <TextField label="Find" hideLabel type="search" placeholder="Find a statement" value={words} onInput={setWords} />
      {found.length === 0 ? (
        <EmptyState title={ran.value.length ? "No statement has these words" : "Nothing was run yet"}>
          <p>They are kept in this browser alone.</p>
        </EmptyState>
      ) : (
        <ul class="ran">
          {found.map((each) => (
            <li key={each.at}>
              <button type="button" class="ran-sql" onClick={() => onChoose(each.sql)}>
                {each.sql.trim().slice(0, 400)}
              </button>
              <div class="hint">
                <Ago at={BigInt(each.at) * 1_000_000n} /> · {duration(each.ms * 1e6)}{" "}
                {each.error ? (
                  <Badge tone={each.error === "cancelled" ? "warn" : "error"}>{each.error.slice(0, 120)}</Badge>
                ) : (
                  `· ${counted(each.rows ?? 0, "row")} · ${each.engine}`
                )}
              </div>
            </li>
          ))}
        </ul>
      )}
    </Dialog>
  );
}
