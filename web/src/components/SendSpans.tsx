import { session } from "../api/session";
import { Code } from "./Code";

/** How to point an OpenTelemetry SDK at this server. */
export function SendSpans() {
  const { needs_token, otlp_http_port: http, otlp_grpc_port: grpc } = session.value ?? {};
  if (!http) return <p>This server takes no spans: start it with CRANNOG_OTLP=true.</p>;
  const lines = [
    `OTEL_EXPORTER_OTLP_ENDPOINT=${location.protocol}//${location.hostname}:${http}`,
    "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
    "OTEL_SERVICE_NAME=my-service",
    ...(needs_token ? ["OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer TOKEN"] : []),
  ];
  return (
    <>
      <p>Point an OpenTelemetry SDK or Collector here, by these variables of its process:</p>
      <Code label="variables" text={lines.join("\n")} />
      <p>
        Port {http} takes OTLP over HTTP, port {grpc} over gRPC. Spans show here as soon as they are sent.
      </p>
    </>
  );
}
