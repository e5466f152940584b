import type { Answered } from "../../api/useAnswer";
import { to } from "../../app/router";
import { BuildStatus, EmptyState, Panel, Shown, Table, type Column } from "../../components";

const columns: Column<[string, string]>[] = [
  { id: "ref", title: "Partition", cell: ([ref]) => <a href={to("partitions", { ref })}>{ref}</a> },
  { id: "state", title: "State in this build", cell: ([, status]) => <BuildStatus status={status} /> },
];

/** The partitions that a build touched. */
export function PartitionsTab({ partitions }: { partitions: Answered<Record<string, string>> }) {
  return (
    <Panel flush>
      <Shown
        of={partitions}
        empty={(found) => !Object.keys(found).length && <EmptyState title="The build touched no partition yet" />}
      >
        {(found) => <Table label="Partitions" columns={columns} rows={Object.entries(found)} rowKey={([ref]) => ref} />}
      </Shown>
    </Panel>
  );
}
