import { useState } from "preact/hooks";
import { asError } from "../../api/errors";
import { may } from "../../api/session";
import { evict, getMemory, pin, type HotTable } from "../../api/upkeep";
import { useAnswer } from "../../api/useAnswer";
import { to } from "../../app/router";
import {
  Ago,
  Badge,
  Button,
  Bytes,
  Count,
  EmptyState,
  Panel,
  Progress,
  Select,
  Shown,
  Table,
  toast,
  type Column,
} from "../../components";
import { bytes, percent } from "../../format/numbers";

const EVERY_MS = 10_000;

/** Tables that are held in memory: pin one, evict one. */
export function MemoryTab({ tables }: { tables: readonly string[] }) {
  const memory = useAnswer(getMemory, [], { everyMs: EVERY_MS });
  const [chosen, setChosen] = useState("");
  const [busy, setBusy] = useState("");
  const change = async (name: string, what: "pin" | "evict") => {
    setBusy(name);
    try {
      await (what === "pin" ? pin(name) : evict(name));
      toast(what === "pin" ? `${name} is pinned` : `${name} is evicted`);
      setChosen("");
    } catch (thrown) {
      toast(asError(thrown).message, "error");
    } finally {
      setBusy("");
      memory.reload();
    }
  };
  const held = new Set((memory.data?.tables ?? []).map((table) => table.name));
  const offered = tables.filter((name) => !held.has(name) && may("write", name));
  return (
    <Panel flush>
      <div class="upkeep-bar">
        <Select
          label="Table to pin"
          hideLabel
          value={chosen}
          onChange={setChosen}
          options={[["", "Choose a table to hold in memory"], ...offered]}
        />
        <Button
          because={chosen ? undefined : "Choose a table first"}
          busy={busy === chosen && !!chosen}
          onClick={() => void change(chosen, "pin")}
        >
          Pin
        </Button>
        {memory.data && (
          <div class="upkeep-used">
            <Progress
              share={memory.data.bytes / Math.max(1, memory.data.limit_bytes)}
              label={`${bytes(memory.data.bytes)} of ${bytes(memory.data.limit_bytes)} used`}
            />
          </div>
        )}
      </div>
      <Shown of={memory} empty={(found) => found.tables.length === 0 && <NoneHeld />}>
        {(found) => (
          <Table
            label="Tables in memory"
            columns={columns(busy, (name) => void change(name, "evict"))}
            rows={found.tables}
            rowKey={(table) => table.name}
          />
        )}
      </Shown>
    </Panel>
  );
}

function NoneHeld() {
  return (
    <EmptyState title="No table is held in memory">
      <p>Pin a table that is asked often: its queries are then answered from memory, with all changes.</p>
    </EmptyState>
  );
}

function columns(busy: string, drop: (name: string) => void): Column<HotTable>[] {
  return [
    {
      id: "name",
      title: "Table",
      cell: (table) => (
        <a class="wraps" href={to("tables", table.name)}>
          {table.name}
        </a>
      ),
    },
    {
      id: "state",
      title: "State",
      cell: (table) =>
        table.error ? (
          <Badge tone="error" title={table.error}>
            {table.error}
          </Badge>
        ) : (
          <Badge tone={table.state === "loading" ? "running" : "ok"}>{table.state}</Badge>
        ),
    },
    { id: "rows", title: "Rows", align: "right", wide: true, cell: (table) => <Count value={table.rows} /> },
    { id: "bytes", title: "Size", align: "right", cell: (table) => <Bytes value={table.bytes} /> },
    {
      id: "hits",
      title: "Answered",
      align: "right",
      wide: true,
      cell: (table) =>
        table.hits + table.misses ? (
          <span title={`${table.hits} of ${table.hits + table.misses}`}>
            {percent(table.hits / (table.hits + table.misses))}
          </span>
        ) : (
          <span class="nothing">not asked</span>
        ),
    },
    {
      id: "last",
      title: "Last asked",
      align: "right",
      wide: true,
      cell: (table) => <Ago at={table.last_access * 1e9} />,
    },
    {
      id: "do",
      title: "",
      align: "right",
      cell: (table) => (
        <Button
          busy={busy === table.name}
          because={may("write", table.name) ? undefined : "Your token needs write for this"}
          aria-label={`Evict ${table.name}`}
          onClick={() => drop(table.name)}
        >
          Evict
        </Button>
      ),
    },
  ];
}
