/** One receipt of an erasure over several tables and traces, made to be printed. */

import { getReceipt, type Place, type Receipt, type TableReceipt } from "../../api/erasure";
import { useAnswer } from "../../api/useAnswer";
import { mayAnywhere } from "../../api/session";
import type { PageProps } from "../../app/pages";
import { to } from "../../app/router";
import {
  Badge,
  Button,
  Count,
  EmptyState,
  KeyValue,
  PageHead,
  Panel,
  Shown,
  Table,
  Time,
  type Column,
} from "../../components";
import { counted, digits } from "../../format/numbers";
import "./erase.css";

export default function ReceiptPage({ params }: PageProps) {
  const id = params["receiptId"]!;
  const receipt = useAnswer((signal) => getReceipt(id, signal), [id]);
  return (
    <>
      <PageHead
        title="Receipt of an erasure"
        above={mayAnywhere("admin") ? <a href={to("erase")}>Erase</a> : undefined}
        actions={
          <Button kind="primary" onClick={() => window.print()}>
            Print
          </Button>
        }
      />
      {receipt.error?.status === 404 ? (
        <EmptyState title="There is no such receipt">
          <p>
            The id is mistyped, or your token may not read the tables that it is about.{" "}
            <a href={to("erase")}>Show all</a>.
          </p>
        </EmptyState>
      ) : (
        <Shown of={receipt}>{(found) => <Whole receipt={found} />}</Shown>
      )}
    </>
  );
}

function Whole({ receipt }: { receipt: Receipt }) {
  return (
    <div class="receipt">
      <Panel>
        <KeyValue
          pairs={[
            ["Receipt", <code>{receipt.erasure_id}</code>],
            ["Erased", <Time at={receipt.erased_at} />],
            ["By", receipt.actor || null],
            ["Reason", receipt.reason || null],
            [
              "Removed",
              `${counted(receipt.rows_erased, "row")} in ${counted(new Set(receipt.tables).size, "table")}; ${counted(receipt.files_deleted, "file")} deleted`,
            ],
            [
              "Checked afterwards",
              receipt.found_after === 0 ? (
                <Badge tone="ok">nothing left in any place that was looked at</Badge>
              ) : (
                <Badge tone="error">found in {counted(receipt.found_after, "file")}</Badge>
              ),
            ],
          ]}
        />
      </Panel>
      {receipt.receipts.map((each, index) => (
        <OfTable key={index} receipt={each} />
      ))}
      <p class="hint receipt-foot">
        Counts are of files that showed a key, before and after. The hashes are keyed with a secret of the warehouse:
        whoever has it and the key of a row can show that this receipt is about that row; nobody else can. Copies
        elsewhere, such as backups and exported files, are not covered.
      </p>
    </div>
  );
}

function OfTable({ receipt }: { receipt: TableReceipt }) {
  return (
    <Panel title={receipt.table} flush>
      <div class="receipt-facts">
        <KeyValue
          pairs={[
            ["Erased", <Time at={receipt.erased_at} />],
            ["Keys asked for", <Count value={receipt.keys} />],
            ["Rows erased", <Count value={receipt.rows_erased} />],
            ["Files deleted", <Count value={receipt.files_deleted} />],
            ["Versions that cannot be read any more", receipt.versions_lost.join(", ") || "none"],
            ["Readers that were cut off", <Count value={receipt.readers_cut_off} />],
            ["Took", `${digits(receipt.seconds)} s`],
          ]}
        />
      </div>
      <Table
        label={`Places in ${receipt.table}`}
        columns={columns}
        rows={receipt.places}
        rowKey={(each) => each.place}
      />
      <details class="receipt-facts">
        <summary>{counted(receipt.key_hashes.length, "hash", "hashes")} of keys</summary>
        <ul class="mono hashes">
          {receipt.key_hashes.map((hash) => (
            <li key={hash}>{hash}</li>
          ))}
        </ul>
      </details>
    </Panel>
  );
}

const columns: Column<Place>[] = [
  { id: "place", title: "Place", cell: (each) => each.place },
  { id: "looked", title: "Looked at", align: "right", cell: (each) => <Count value={each.looked_at} /> },
  { id: "before", title: "Before", align: "right", cell: (each) => <Count value={each.before} /> },
  { id: "after", title: "After", align: "right", cell: (each) => <Count value={each.after} /> },
];
