/** Where the rows lie: files of the base, staged changes, and deletes that wait for a fold. */

import { tableTombstones, type TableDescription, type Tombstone } from "../../api/tables";
import { writeJson } from "../../api/json";
import { listUpkeep } from "../../api/upkeep";
import { useAnswer } from "../../api/useAnswer";
import { to } from "../../app/router";
import { Badge, Bytes, Count, EmptyState, KeyValue, Panel, Shown, Table, Time, type Column } from "../../components";
import { bytes } from "../../format/numbers";

const columns: Column<Tombstone>[] = [
  { id: "key", title: "Key", cell: (each) => <span class="mono breaks">{keyText(each.key)}</span> },
  { id: "outcome", title: "State", cell: (each) => <Badge>{each.outcome}</Badge> },
  { id: "actor", title: "By", cell: (each) => each.actor || <span class="nothing">–</span> },
  { id: "reason", title: "Reason", wide: true, cell: (each) => each.reason || <span class="nothing">–</span> },
  { id: "at", title: "Deleted", align: "right", cell: (each) => <Time at={each.deleted_at} /> },
];

const MOST = 500;

function keyText(key: Record<string, unknown>): string {
  return Object.entries(key)
    .map(([name, value]) => `${name} = ${typeof value === "string" ? value : writeJson(value)}`)
    .join(", ");
}

export function FilesTab({ table }: { table: TableDescription }) {
  const deletes = useAnswer(
    (signal) => tableTombstones(table.name, signal),
    [table.name, table.sequence, table.folded_sequence],
    { when: table.key.length > 0 },
  );
  return (
    <>
      <div class="columns">
        <Panel title="Base">
          <KeyValue
            pairs={[
              ["Files", <Count value={table.files} />],
              ["Rows", <Count value={table.base_rows} />],
              ["Size", <Bytes value={table.bytes} />],
              ["Size of a file", table.files ? `${bytes(Math.round(table.bytes / table.files))} on average` : "–"],
              ["Version", <Count value={table.version} />],
            ]}
          />
        </Panel>
        <Panel title="Staged changes">
          <KeyValue
            pairs={[
              ["Files", <Count value={table.staged_files} />],
              ["Rows", <Count value={table.staged_rows} />],
              ["Size", <Bytes value={table.staged_bytes} />],
              ["Folded until change", <Count value={table.folded_sequence} />],
              ["Newest change", <Count value={table.sequence} />],
            ]}
          />
          <p class="hint panel-note">
            Every query sees staged changes; a fold writes them into the base.{" "}
            <a href={to("tables", table.name, { tab: "jobs" })}>Fold now</a>
          </p>
        </Panel>
      </div>
      <StoragePanel table={table} />
      <Panel title="Pending deletes" flush>
        {table.key.length === 0 ? (
          <EmptyState title="A table without a key has no deletes of rows" />
        ) : (
          <Shown
            of={deletes}
            empty={(found) =>
              found.length === 0 && (
                <EmptyState title="No delete waits for a fold">
                  <p>Deleted rows are hidden at once; the next fold removes them from the base.</p>
                </EmptyState>
              )
            }
          >
            {(found) => (
              <>
                <Table
                  label="Pending deletes"
                  columns={columns}
                  rows={found.slice(0, MOST)}
                  rowKey={(_each, place) => place}
                />
                {found.length > MOST && (
                  <p class="hint panel-note">
                    The first {MOST} of {found.length}.
                  </p>
                )}
              </>
            )}
          </Shown>
        )}
      </Panel>
    </>
  );
}

interface Storage {
  base_bytes: number;
  stage_bytes: number;
  log_bytes: number;
  other_bytes: number;
  pending_bytes: number;
  pending_files: number;
}

/** What the table takes on disk, with what a vacuum will free. */
function StoragePanel({ table }: { table: TableDescription }) {
  const upkeep = useAnswer(
    (signal) => listUpkeep({ name: [table.name], storage: true }, signal),
    [table.name, table.sequence, table.version],
  );
  return (
    <Panel title="On disk">
      <Shown of={upkeep} what="Measuring">
        {(found) => {
          const storage = (found[0] as unknown as { storage?: Storage } | undefined)?.storage;
          if (!storage) return <p class="hint">The server did not measure it.</p>;
          return (
            <KeyValue
              pairs={[
                ["Files of the base", <Bytes value={storage.base_bytes} />],
                ["Staged changes", <Bytes value={storage.stage_bytes} />],
                ["Logs", <Bytes value={storage.log_bytes} />],
                ["Other", <Bytes value={storage.other_bytes} />],
                [
                  "Waiting for a vacuum",
                  <>
                    <Bytes value={storage.pending_bytes} /> in <Count value={storage.pending_files} /> files
                  </>,
                ],
              ]}
            />
          );
        }}
      </Shown>
    </Panel>
  );
}
