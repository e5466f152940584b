import { useState } from "preact/hooks";
import { describeTable, listTables } from "../../api/tables";
import type { Answered } from "../../api/useAnswer";
import { to } from "../../app/router";
import { EmptyState, Shown, TextField } from "../../components";
import { quoted, quotedName } from "../../format/sql";
import type { Catalogue } from "./editor";

const MOST = 300;

/** Reads the tables and their columns: for completion, and for the list beside the editor. */
export async function readCatalogue(signal: AbortSignal): Promise<Catalogue> {
  const names = await listTables(false, signal);
  const described = await Promise.allSettled(names.slice(0, MOST).map((name) => describeTable(name, signal)));
  const found: Catalogue = {};
  names.forEach((name, place) => {
    const table = described[place];
    found[name] =
      table?.status === "fulfilled" ? table.value.columns.map(({ name: own, type }) => ({ name: own, type })) : [];
  });
  return found;
}

/** The tables beside the editor: a click writes a name. */
export function TablesSide({ catalogue, insert }: { catalogue: Answered<Catalogue>; insert: (name: string) => void }) {
  const [words, setWords] = useState("");
  const wanted = words.toLowerCase();
  return (
    <aside class="sql-side" aria-label="Tables to query">
      <TextField
        label="Find a table"
        hideLabel
        type="search"
        placeholder="Find a table"
        value={words}
        onInput={setWords}
      />
      <Shown
        of={catalogue}
        empty={(found) =>
          Object.keys(found).length === 0 && (
            <EmptyState title="No tables yet">
              <a href={to("load")}>Load a file</a>
            </EmptyState>
          )
        }
      >
        {(found) => (
          <div class="side-list">
            {Object.entries(found)
              .filter(([name]) => name.toLowerCase().includes(wanted))
              .map(([name, columns]) => (
                <details key={name}>
                  <summary title={name}>
                    <span class="side-schema">{name.split(".").slice(0, 2).join(".")}.</span>
                    {name.split(".").slice(2).join(".")}
                  </summary>
                  <ul>
                    <li>
                      <button type="button" class="side-name" onClick={() => insert(quotedName(name))}>
                        write its name
                      </button>
                    </li>
                    {columns.map((column) => (
                      <li key={column.name}>
                        <button type="button" class="side-name" onClick={() => insert(quoted(column.name))}>
                          {column.name} <span class="hint">{column.type}</span>
                        </button>
                      </li>
                    ))}
                  </ul>
                </details>
              ))}
          </div>
        )}
      </Shown>
    </aside>
  );
}
