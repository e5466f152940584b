import { useState } from "preact/hooks";
import { listEvents, type BuildEvent } from "../../api/builds";
import { useAnswer } from "../../api/useAnswer";
import { writeJson } from "../../api/json";
import {
  BuildStatus,
  Button,
  Code,
  EmptyState,
  Panel,
  Select,
  Shown,
  Table,
  Time,
  type Column,
} from "../../components";
import { KINDS, lineOf, stateOf, subjectOf } from "./events";

const MOST = 500;

interface Props {
  buildId: string;
  kind: string;
  onKind: (kind: string) => void;
  follow: readonly string[] | undefined;
}

/** The events of a build, newest first. */
export function EventsTab({ buildId, kind, onKind, follow }: Props) {
  const [most, setMost] = useState(MOST);
  const events = useAnswer(
    (signal) =>
      listEvents(
        { build_request_id: [buildId], ...(kind ? { kind: [kind] } : {}), limit: most, descending: true },
        signal,
      ),
    [buildId, kind, most],
    { follow },
  );
  return (
    <Panel flush>
      <div class="timeline-bar">
        <Select
          label="Kind"
          hideLabel
          value={kind}
          onChange={onKind}
          options={[["", "All kinds"], ...KINDS.map((each) => [each, each.replace(/_/g, " ")] as const)]}
        />
      </div>
      <Shown of={events} empty={(found) => found.events.length === 0 && <EmptyState title="No event of this kind" />}>
        {(found) => (
          <>
            <EventTable events={found.events} />
            {found.has_more && (
              <div class="pager">
                <Button onClick={() => setMost(most + MOST)}>Show {MOST} older events</Button>
              </div>
            )}
          </>
        )}
      </Shown>
    </Panel>
  );
}

const columns: Column<BuildEvent>[] = [
  { id: "time", title: "Time", cell: (event) => <Time at={event.timestamp} digits={3} /> },
  { id: "kind", title: "Kind", wide: true, cell: (event) => event.event_type.replace(/_/g, " ") },
  {
    id: "state",
    title: "State",
    cell: (event) => {
      const state = stateOf(event);
      return state ? <BuildStatus status={state} /> : <span class="nothing">–</span>;
    },
  },
  { id: "about", title: "About", cell: (event) => <span class="wraps">{subjectOf(event)}</span> },
  { id: "says", title: "Says", cell: (event) => <Says event={event} /> },
];

function Says({ event }: { event: BuildEvent }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <span class="wraps">{lineOf(event)}</span>{" "}
      <button type="button" class="button quiet copy" aria-expanded={open} onClick={() => setOpen(!open)}>
        JSON
      </button>
      {open && <Code label={`Event ${event.event_id}`} text={writeJson(event, 2)} />}
    </>
  );
}

export function EventTable({ events }: { events: readonly BuildEvent[] }) {
  return <Table label="Events" columns={columns} rows={events} rowKey={(event) => event.event_id} />;
}
