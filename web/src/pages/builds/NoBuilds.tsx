import { EmptyState } from "../../components";

/** The log has no builds: how to write some. */
export function NoBuilds() {
  return (
    <EmptyState title="There are no builds yet">
      <p>An orchestrator writes what happens in its builds to this server:</p>
      <pre>{`from crannog.builds import open_log\n\nlog = open_log("${location.origin}")`}</pre>
    </EmptyState>
  );
}
