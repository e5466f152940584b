import type { TableDescription } from "../../api/tables";
import { to } from "../../app/router";
import { Badge, KeyValue, Panel, Table, Time, type Column } from "../../components";
import type { ResultColumn } from "../../format/cells";

interface Line {
  name: string;
  type: string;
  nullable: boolean;
  roles: string[];
}

const heads: Column<Line>[] = [
  { id: "name", title: "Column", cell: (line) => <span class="mono">{line.name}</span> },
  { id: "type", title: "Type", cell: (line) => <span class="mono breaks">{line.type}</span> },
  {
    id: "roles",
    title: "Role",
    cell: (line) => line.roles.map((role) => <Badge key={role}>{role}</Badge>),
  },
  { id: "nullable", title: "Nulls", cell: (line) => (line.nullable ? "allowed" : "never") },
];

function rolesOf(table: TableDescription, name: string): string[] {
  const roles: string[] = [];
  const place = table.key.indexOf(name);
  if (place >= 0) roles.push(table.key.length > 1 ? `key ${place + 1}` : "key");
  if (table.partition_by.includes(name)) roles.push("partition");
  if (table.cluster_by.includes(name)) roles.push("sorted by");
  if (name.startsWith("_")) roles.push("of Crannog");
  return roles;
}

export function ColumnsTab({ table, columns }: { table: TableDescription; columns: readonly ResultColumn[] }) {
  const nullable = new Map(table.columns.map((column) => [column.name, column.nullable]));
  const lines = columns.map((column) => ({
    name: column.name,
    type: column.type,
    nullable: nullable.get(column.name) ?? true,
    roles: rolesOf(table, column.name),
  }));
  return (
    <>
      <Panel flush>
        <Table label="Columns" columns={heads} rows={lines} rowKey={(line) => line.name} />
      </Panel>
      <Panel title="Definition">
        <KeyValue
          pairs={[
            ["Key", table.key.length ? table.key.join(", ") : "none: rows are only added"],
            ["Partitioned by", table.partition_by.length ? table.partition_by.join(", ") : "nothing"],
            ["Sorted by", table.cluster_by.length ? table.cluster_by.join(", ") : "the time of writing"],
            ["Created", <Time at={table.created_at} />],
            ["In memory", <a href={to("upkeep")}>see upkeep</a>],
          ]}
        />
      </Panel>
    </>
  );
}
