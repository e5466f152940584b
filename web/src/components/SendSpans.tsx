import { session } from "../api/session";
import { Code } from "./Code";

/** How to point an OpenTelemetry SDK at this server. */
export function SendSpans() {
  const needsToken = session.value?.needs_token ?? false;
  const lines = [
    `OTEL_EXPORTER_OTLP_ENDPOINT=${location.protocol}//${location.hostname}:4318`,
    "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
    "OTEL_SERVICE_NAME=my-service",
    ...(needsToken ? ["OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer TOKEN"] : []),
  ];
  return (
    <>
      <p>Point an OpenTelemetry SDK or Collector here, by these variables of its process:</p>
      <Code label="variables" text={lines.join("\n")} />
      <p>
        Port 4318 takes OTLP over HTTP and 4317 over gRPC, unless this server was started with others. Spans show here
        as soon as they are sent.
      </p>
    </>
  );
}
