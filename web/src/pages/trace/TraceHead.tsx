import { useState } from "preact/hooks";
import { DOWNLOADS, downloadAddress } from "../../api/trace";
import { to } from "../../app/router";
import { Badge, Button, Code, CopyButton, Dialog, Duration, Menu, PageHead, Time } from "../../components";
import { count, counted } from "../../format/numbers";
import type { Skeleton, TraceFacts } from "./useSkeleton";

interface Props {
  traceId: string;
  skeleton: Skeleton;
  onErrors: () => void;
}

/** What the trace is, and what can be done with all of it. */
export function TraceHead({ traceId, skeleton, onErrors }: Props) {
  const { tree, facts } = skeleton;
  const [showsSql, setShowsSql] = useState(false);
  const [service, operation] = tree.rows
    ? [tree.services[tree.service[0]!], tree.names[tree.name[0]!]]
    : ["", "no spans"];
  const sql = sqlOf(traceId, facts);
  return (
    <PageHead
      above={<a href={to("traces")}>Traces</a>}
      title={
        <>
          {service}: {operation}
        </>
      }
      actions={
        <>
          <CopyButton text={traceId} label="Copy trace id" what="trace id" />
          <CopyButton text={() => location.href} label="Copy link" what="link" />
          <a class="button" href={to("traces", "compare", { a: traceId })}>
            Compare
          </a>
          <Button onClick={() => setShowsSql(true)}>As SQL</Button>
          <Menu
            label="Download"
            items={DOWNLOADS.map(([format, label]) => ({
              label,
              href: downloadAddress(traceId, format),
              download: true,
            }))}
          />
        </>
      }
    >
      <p class="trace-facts">
        <Time at={facts.startNs} digits={3} />
        <span>
          <Duration ns={facts.endNs - facts.startNs} />
        </span>
        <span>{counted(facts.spans, "span")}</span>
        <span>{counted(tree.services.length, "service")}</span>
        <span>{facts.deepest + 1} levels</span>
        {facts.errors > 0 && (
          <button type="button" class="plain" onClick={onErrors} title="Go to the next error (e)">
            <Badge tone="error">{counted(facts.errors, "error")}</Badge>
          </button>
        )}
        {facts.orphans > 0 && (
          <Badge tone="warn" title="Their parents have not arrived">
            {counted(facts.orphans, "orphan")}
          </Badge>
        )}
        {facts.cycles > 0 && (
          <Badge tone="warn" title="Spans that are their own ancestors">
            {counted(facts.cycles, "cycle")}
          </Badge>
        )}
        {facts.skewed > 0 && (
          <Badge tone="warn" title="Spans that start before or end after their parent: clocks differ">
            {count(facts.skewed)} skewed
          </Badge>
        )}
        {!facts.complete && <Badge tone="warn">further spans are left out: the trace is very large</Badge>}
      </p>
      {showsSql && (
        <Dialog
          title="This trace as SQL"
          wide
          onClose={() => setShowsSql(false)}
          actions={
            <a class="button primary" href={to("sql", { q: sql })}>
              Open in the editor
            </a>
          }
        >
          <Code text={sql} label="SQL" />
        </Dialog>
      )}
    </PageHead>
  );
}

/**
 * Writes the query of a trace. The first half of the id is a column of its own, by which files are left out and which all
 * engines compare; only ids without a first half are compared whole, which takes Spark.
 */
function sqlOf(traceId: string, { startNs, endNs }: TraceFacts): string {
  // Only digits of hexadecimal: the id is part of an address that anybody can write.
  const id = traceId.replace(/[^0-9a-fA-F]/g, "").toUpperCase();
  const half = BigInt.asIntN(64, BigInt(`0x0${id.slice(0, 16)}`));
  const condition =
    half === 0n ? `trace_id = X'${id}'` : `trace_hi = ${half} AND start_ns BETWEEN ${startNs} AND ${endNs}`;
  return `-- trace ${id}
SELECT start_time, service_name, span_name, duration_ms, status_code, attributes
FROM crannog.traces.spans
WHERE ${condition}
ORDER BY start_ns`;
}
