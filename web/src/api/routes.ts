/** The routes of the server: made from its OpenAPI document by `make docs`, not by hand. */

/** An object of which the document does not say more. */
export type Fields = Record<string, unknown>;

export interface Routes {
  "GET /api/v1/builds": {
    query: { status?: string | null | undefined; limit?: number | bigint | undefined; offset?: number | bigint | undefined; as_of?: number | bigint | undefined };
    answer: Fields;
  };
  "GET /api/v1/builds/activity": {
    query: { recent?: number | bigint | undefined; as_of?: number | bigint | undefined };
    answer: Fields;
  };
  "GET /api/v1/builds/build": {
    query: { build_request_id: string; as_of?: number | bigint | undefined };
    answer: Fields | null;
  };
  "GET /api/v1/builds/build/graph": {
    query: { build_request_id: string; as_of?: number | bigint | undefined };
    answer: Fields;
  };
  "GET /api/v1/builds/build/partitions": {
    query: { build_request_id: string; as_of?: number | bigint | undefined };
    answer: Fields;
  };
  "POST /api/v1/builds/check": {
    answer: Fields;
  };
  "POST /api/v1/builds/compact": {
    answer: Fields;
  };
  "GET /api/v1/builds/compare": {
    query: { first: string; second: string; as_of?: number | bigint | undefined };
    answer: Fields;
  };
  "POST /api/v1/builds/edges": {
    query: { as_of?: number | bigint | undefined };
    body: { partition_refs: Array<string>; upstream?: boolean | undefined };
    answer: Array<Fields>;
  };
  "GET /api/v1/builds/event": {
    query: { event_id: string; as_of?: number | bigint | undefined };
    answer: Fields | null;
  };
  "GET /api/v1/builds/events": {
    query: { build_request_id?: Array<string> | undefined; partition_ref?: Array<string> | undefined; partition_glob?: Array<string> | undefined; job_label?: Array<string> | undefined; job_run_id?: Array<string> | undefined; kind?: Array<string> | undefined; start_ns?: number | bigint | null | undefined; end_ns?: number | bigint | null | undefined; since?: number | bigint | null | undefined; limit?: number | bigint | undefined; descending?: boolean | undefined; as_of?: number | bigint | undefined };
    answer: Fields;
  };
  "POST /api/v1/builds/events": {
    query: { check_states?: boolean | undefined };
    body: Fields | Array<Fields>;
    answer: Fields;
  };
  "POST /api/v1/builds/events/follow": {
    query: { beat_s?: number | undefined };
    body: { build_request_ids?: Array<string> | undefined; partition_refs?: Array<string> | undefined; partition_globs?: Array<string> | undefined; job_labels?: Array<string> | undefined; job_run_ids?: Array<string> | undefined; kinds?: Array<string> | undefined; start_ns?: number | bigint | null | undefined; end_ns?: number | bigint | null | undefined; since?: number | bigint | null | undefined; limit?: number | bigint | undefined; descending?: boolean | undefined } | undefined;
    answer: Fields;
  };
  "POST /api/v1/builds/events/query": {
    query: { as_of?: number | bigint | undefined };
    body: { build_request_ids?: Array<string> | undefined; partition_refs?: Array<string> | undefined; partition_globs?: Array<string> | undefined; job_labels?: Array<string> | undefined; job_run_ids?: Array<string> | undefined; kinds?: Array<string> | undefined; start_ns?: number | bigint | null | undefined; end_ns?: number | bigint | null | undefined; since?: number | bigint | null | undefined; limit?: number | bigint | undefined; descending?: boolean | undefined } | undefined;
    answer: Fields;
  };
  "POST /api/v1/builds/events/remove": {
    body: { indexes: Array<number | bigint> };
    answer: Fields;
  };
  "GET /api/v1/builds/head": {
    query: { as_of?: number | bigint | undefined };
    answer: Fields;
  };
  "GET /api/v1/builds/jobs": {
    query: { limit?: number | bigint | undefined; as_of?: number | bigint | undefined };
    answer: Array<Fields>;
  };
  "GET /api/v1/builds/lineage": {
    query: { partition_ref: string; direction?: string | undefined; depth?: number | bigint | undefined; limit?: number | bigint | undefined; as_of?: number | bigint | undefined };
    answer: Fields;
  };
  "GET /api/v1/builds/manifests": {
    query: { build_request_id?: string | null | undefined; partition_ref?: string | null | undefined; as_of?: number | bigint | undefined };
    answer: Array<Fields>;
  };
  "GET /api/v1/builds/partitions": {
    query: { limit?: number | bigint | undefined; as_of?: number | bigint | undefined };
    answer: Array<Fields>;
  };
  "GET /api/v1/builds/partitions/active": {
    query: { partition_ref: string; as_of?: number | bigint | undefined };
    answer: Array<string>;
  };
  "GET /api/v1/builds/partitions/status": {
    query: { partition_ref: string; as_of?: number | bigint | undefined };
    answer: Fields | null;
  };
  "GET /api/v1/builds/prunable": {
    query: { before_ns?: number | bigint | null | undefined; keep_events?: number | bigint | null | undefined; limit?: number | bigint | undefined };
    answer: Fields;
  };
  "POST /api/v1/builds/prune": {
    body: { before_ns?: number | bigint | null | undefined; keep_events?: number | bigint | null | undefined; dry_run?: boolean | undefined; batch?: number | bigint | undefined } | undefined;
    answer: Fields;
  };
  "GET /api/v1/builds/runs": {
    query: { build_request_id?: string | null | undefined; job_label?: string | null | undefined; limit?: number | bigint | undefined; as_of?: number | bigint | undefined };
    answer: Array<Fields>;
  };
  "GET /api/v1/builds/stats": {
    query: { as_of?: number | bigint | undefined };
    answer: Fields;
  };
  "POST /api/v1/builds/wipe": {
    query: { build_request_id: string };
    answer: Fields;
  };
  "GET /api/v1/cache": {
    answer: Fields;
  };
  "PUT /api/v1/cache/{name}": {
    path: { name: string };
    answer: Fields;
  };
  "DELETE /api/v1/cache/{name}": {
    path: { name: string };
    answer: Fields;
  };
  "GET /api/v1/dependencies": {
    query: { start?: number | bigint | string | null | undefined; end?: number | bigint | string | null | undefined };
    answer: Array<Fields>;
  };
  "GET /api/v1/operations": {
    query: { service: string };
    answer: Array<Array<string | null>>;
  };
  "GET /api/v1/receipts": {
    query: { limit?: number | bigint | undefined };
    answer: Array<Fields>;
  };
  "GET /api/v1/receipts/{erasure_id}": {
    path: { erasure_id: string };
    answer: Fields;
  };
  "GET /api/v1/search": {
    query: { q: string; limit?: number | bigint | undefined };
    answer: Array<Fields>;
  };
  "GET /api/v1/services": {
    answer: Array<string>;
  };
  "GET /api/v1/services/{service}/operations": {
    path: { service: string };
    query: { kind?: string | null | undefined };
    answer: Array<string>;
  };
  "GET /api/v1/session": {
    answer: { signed_in: boolean; needs_token: boolean; name: string; scopes: Array<string>; version: string; otlp_http_port: number | bigint | null; otlp_grpc_port: number | bigint | null };
  };
  "POST /api/v1/session": {
    body: { token: string };
    answer: { signed_in: boolean; needs_token: boolean; name: string; scopes: Array<string>; version: string; otlp_http_port: number | bigint | null; otlp_grpc_port: number | bigint | null };
  };
  "DELETE /api/v1/session": {
    answer: { signed_in: boolean; needs_token: boolean; name: string; scopes: Array<string>; version: string; otlp_http_port: number | bigint | null; otlp_grpc_port: number | bigint | null };
  };
  "POST /api/v1/sql": {
    body: { sql: string; max_rows?: number | bigint | null | undefined; engine?: "auto" | "hot" | "local" | "spark" | undefined; timeout_s?: number | null | undefined; query_id?: string | null | undefined };
    answer: { columns: Array<Fields>; rows: Array<Array<unknown>>; row_count: number | bigint; truncated: boolean; engine: string; elapsed_ms: number; query_id: string };
  };
  "POST /api/v1/sql/explain": {
    body: { sql: string; engine?: "auto" | "hot" | "local" | "spark" | undefined; analyze?: boolean | undefined; timeout_s?: number | null | undefined; query_id?: string | null | undefined };
    answer: Fields;
  };
  "POST /api/v1/sql/stream": {
    body: { sql: string; max_rows?: number | bigint | null | undefined; engine?: "auto" | "hot" | "local" | "spark" | undefined; timeout_s?: number | null | undefined; query_id?: string | null | undefined };
    answer: Array<Fields>;
  };
  "DELETE /api/v1/sql/{query_id}": {
    path: { query_id: string };
    answer: Fields;
  };
  "GET /api/v1/tables": {
    query: { system?: boolean | undefined };
    answer: Array<Fields>;
  };
  "GET /api/v1/tables/{name}": {
    path: { name: string };
    answer: Fields;
  };
  "PUT /api/v1/tables/{name}": {
    path: { name: string };
    query: { key?: Array<string> | undefined; partition_by?: Array<string> | undefined; cluster_by?: Array<string> | undefined; bloom?: Array<string> | undefined; if_exists?: "error" | "ok" | undefined };
    body: { schema: Fields; key?: Array<string> | string | null | undefined; partition_by?: Array<string> | string | undefined; cluster_by?: Array<string> | string | undefined; bloom?: Array<string> | string | undefined };
    answer: Fields;
  };
  "DELETE /api/v1/tables/{name}": {
    path: { name: string };
    answer: Fields;
  };
  "GET /api/v1/tables/{name}/audit": {
    path: { name: string };
    answer: Array<Fields>;
  };
  "POST /api/v1/tables/{name}/compact": {
    path: { name: string };
    body: { dry_run?: boolean | undefined } | undefined;
    answer: { base_rows: number | bigint; delta_rows: number | bigint; final_rows: number | bigint; deltas_merged: number | bigint; tombstones_applied: number | bigint; rows_dropped_by_tombstones: number | bigint; files_before: number | bigint; files_after: number | bigint; bytes_before: number | bigint; bytes_after: number | bigint; seconds: number; version?: number | bigint | null | undefined; skipped?: string | undefined; plan?: Array<string> | undefined; duplicates_dropped?: number | bigint | undefined };
  };
  "GET /api/v1/tables/{name}/count": {
    path: { name: string };
    query: { raw?: boolean | undefined };
    answer: { rows?: number | bigint | undefined };
  };
  "POST /api/v1/tables/{name}/delete": {
    path: { name: string };
    query: { actor?: string | undefined; reason?: string | undefined };
    body: { keys: Array<unknown>; actor?: string | undefined; reason?: string | undefined };
    answer: { sequence: number | bigint; rows: number | bigint; batch_id: string; duplicate: boolean };
  };
  "POST /api/v1/tables/{name}/erase": {
    path: { name: string };
    query: { actor?: string | undefined; reason?: string | undefined; erasure_id?: string | undefined };
    body: { keys: Array<unknown>; actor?: string | undefined; reason?: string | undefined; erasure_id?: string | null | undefined };
    answer: { table: string; keys: number | bigint; key_hashes: Array<string>; actor: string; reason: string; erased_at: string; rows_erased: number | bigint; places: Array<{ place: string; looked_at: number | bigint; before: number | bigint; after: number | bigint }>; files_deleted: number | bigint; versions_lost: Array<number | bigint>; readers_cut_off: number | bigint; seconds: number; erasure_id?: string | undefined };
  };
  "POST /api/v1/tables/{name}/evolve": {
    path: { name: string };
    body: { schema: Fields };
    answer: { added: Array<string>; widened: Array<string>; files_rewritten: number | bigint; version: number | bigint | null; seconds: number };
  };
  "POST /api/v1/tables/{name}/expire": {
    path: { name: string };
    body: { before: string; column?: string | null | undefined };
    answer: { column: string; before: string; rows_dropped: number | bigint; rows_kept: number | bigint; files_dropped: number | bigint; files_rewritten: number | bigint; files_before: number | bigint; files_after: number | bigint; bytes_before: number | bigint; bytes_after: number | bigint; seconds: number; version?: number | bigint | null | undefined };
  };
  "GET /api/v1/tables/{name}/facets": {
    path: { name: string };
    query: { column?: Array<string> | undefined; where?: Array<unknown> | undefined; top?: number | bigint | undefined; bins?: number | bigint | undefined };
    answer: { table: string; rows: number | bigint; sampled: boolean; columns: Array<{ name: string; type: string; nulls: number | bigint; null_share: number; distinct?: number | bigint | null | undefined; min?: unknown | undefined; max?: unknown | undefined; mean?: number | null | undefined; top?: Array<{ value: unknown; count: number | bigint }> | undefined; histogram?: Array<{ low: unknown; high: unknown; count: number | bigint }> | undefined }>; elapsed_ms: number };
  };
  "POST /api/v1/tables/{name}/fold": {
    path: { name: string };
    answer: { folded_to?: number | bigint | undefined; version?: number | bigint | null | undefined; changes?: number | bigint | undefined; staged_rows?: number | bigint | undefined; base_rows?: number | bigint | undefined; final_rows?: number | bigint | undefined; tombstones_applied?: number | bigint | undefined; rows_dropped_by_tombstones?: number | bigint | undefined; files_before?: number | bigint | undefined; files_after?: number | bigint | undefined; files_rewritten?: number | bigint | undefined; bytes_before?: number | bigint | undefined; bytes_after?: number | bigint | undefined; bytes_written?: number | bigint | undefined; write_amplification?: number | undefined; seconds?: number | undefined };
  };
  "GET /api/v1/tables/{name}/history": {
    path: { name: string };
    query: { limit?: number | bigint | null | undefined };
    answer: Array<Fields>;
  };
  "POST /api/v1/tables/{name}/load": {
    path: { name: string };
    query: { file?: string | undefined; create?: boolean | undefined; key?: Array<string> | undefined; partition_by?: Array<string> | undefined; types?: string | undefined; mode?: string | undefined; format?: string | undefined; delimiter?: string | undefined; flatten?: boolean | undefined; evolve?: boolean | undefined; ignore_extra?: boolean | undefined; max_bad?: number | bigint | undefined; again?: boolean | undefined; dry_run?: boolean | undefined };
    answer: { table: string; created?: boolean | undefined; dry_run?: boolean | undefined; files?: Array<{ file: string; format: string; bytes: number | bigint; rows?: number | bigint | undefined; bad_rows?: number | bigint | undefined; duplicate_rows?: number | bigint | undefined; batches?: number | bigint | undefined; duplicate?: boolean | undefined; engine?: string | undefined }> | undefined; rows?: number | bigint | undefined; bad_rows?: number | bigint | undefined; duplicate_rows?: number | bigint | undefined; duplicates?: number | bigint | undefined; batches?: number | bigint | undefined; bytes?: number | bigint | undefined; seconds?: number | undefined; rows_per_s?: number | undefined; columns?: Array<Fields> | undefined; key?: Array<string> | undefined; drift?: Array<{ column: string; change: string; in_table: string; in_files: string; done?: string | undefined }> | undefined; renamed?: Record<string, string> | undefined; first_bad?: Array<{ file: string; line: number | bigint; column: string; value: string; reason: string }> | undefined; first_rows?: Array<Fields> | undefined; reject?: string | undefined };
  };
  "GET /api/v1/tables/{name}/preview": {
    path: { name: string };
    query: { raw?: boolean | undefined; n?: number | bigint | undefined };
    answer: Array<Fields>;
  };
  "GET /api/v1/tables/{name}/row": {
    path: { name: string };
    query: { key: unknown };
    answer: Fields;
  };
  "GET /api/v1/tables/{name}/rows": {
    path: { name: string };
    query: { raw?: boolean | undefined; limit?: number | bigint | null | undefined; order?: string | undefined; after?: string | null | undefined; before?: string | null | undefined; where?: Array<unknown> | undefined; column?: Array<string> | undefined };
    answer: Array<Fields>;
  };
  "POST /api/v1/tables/{name}/rows": {
    path: { name: string };
    body: Array<Fields> | Fields;
    answer: { sequence: number | bigint; rows: number | bigint; batch_id: string; duplicate: boolean };
  };
  "PUT /api/v1/tables/{name}/rows": {
    path: { name: string };
    body: Array<Fields> | Fields;
    answer: { sequence: number | bigint; rows: number | bigint; batch_id: string; duplicate: boolean };
  };
  "GET /api/v1/tables/{name}/rows/{key}": {
    path: { name: string; key: string };
    answer: Fields;
  };
  "GET /api/v1/tables/{name}/schema": {
    path: { name: string };
    answer: Fields;
  };
  "GET /api/v1/tables/{name}/tombstones": {
    path: { name: string };
    answer: Array<Fields>;
  };
  "POST /api/v1/tables/{name}/vacuum": {
    path: { name: string };
    body: { retention_hours?: number | null | undefined; force?: boolean | undefined; dry_run?: boolean | undefined } | undefined;
    answer: { files_deleted: number | bigint; bytes_deleted: number | bigint; staged_files_deleted: number | bigint; kept_for_readers: number | bigint; retention_s: number; raised_to_floor: boolean; dry_run: boolean; files?: Array<string> | undefined };
  };
  "GET /api/v1/tasks": {
    answer: Array<Fields>;
  };
  "GET /api/v1/traces": {
    query: { service?: string | null | undefined; operation?: string | null | undefined; text?: string | null | undefined; attribute?: Array<string> | undefined; where?: string | null | undefined; start?: number | bigint | string | null | undefined; end?: number | bigint | string | null | undefined; limit?: number | bigint | undefined; cursor?: string | null | undefined; order?: string | undefined; count?: boolean | undefined; has_errors?: boolean | null | undefined; min_duration_ms?: number | null | undefined; max_duration_ms?: number | null | undefined };
    answer: Fields;
  };
  "GET /api/v1/traces/attributes": {
    query: { first?: string | null | undefined; last?: string | null | undefined };
    answer: Array<Fields>;
  };
  "GET /api/v1/traces/compare": {
    query: { before: string; after: string; limit?: number | bigint | undefined; tolerance?: number | undefined };
    answer: Fields;
  };
  "GET /api/v1/traces/complete": {
    query: { service?: string | null | undefined; operation?: string | null | undefined; text?: string | null | undefined; attribute?: Array<string> | undefined; where?: string | null | undefined; start?: number | bigint | string | null | undefined; end?: number | bigint | string | null | undefined; what: string; prefix?: string | undefined; key?: string | null | undefined; limit?: number | bigint | undefined };
    answer: Array<Fields>;
  };
  "POST /api/v1/traces/complete": {
    body: { service?: string | null | undefined; operation?: string | null | undefined; text?: string | null | undefined; attributes?: Record<string, string | number | bigint | number | boolean | Array<string | number | bigint | number | boolean>> | null | undefined; attribute_pairs?: Array<string> | undefined; where?: string | null | undefined; start?: number | bigint | string | null | undefined; end?: number | bigint | string | null | undefined; what: string; prefix?: string | undefined; key?: string | null | undefined; limit?: number | bigint | undefined };
    answer: Array<Fields>;
  };
  "POST /api/v1/traces/dependencies": {
    body: { start?: number | bigint | string | null | undefined; end?: number | bigint | string | null | undefined };
    answer: Array<Fields>;
  };
  "POST /api/v1/traces/derive": {
    body: { anew?: Array<string> | undefined };
    answer: Fields;
  };
  "GET /api/v1/traces/differences": {
    query: { service?: string | null | undefined; operation?: string | null | undefined; text?: string | null | undefined; attribute?: Array<string> | undefined; where?: string | null | undefined; start?: number | bigint | string | null | undefined; end?: number | bigint | string | null | undefined; selected?: string | null | undefined; selected_start?: number | bigint | string | null | undefined; selected_end?: number | bigint | string | null | undefined; min_duration_ms?: number | null | undefined; max_duration_ms?: number | null | undefined; limit?: number | bigint | undefined; values?: number | bigint | undefined };
    answer: Fields;
  };
  "POST /api/v1/traces/differences": {
    body: { service?: string | null | undefined; operation?: string | null | undefined; text?: string | null | undefined; attributes?: Record<string, string | number | bigint | number | boolean | Array<string | number | bigint | number | boolean>> | null | undefined; attribute_pairs?: Array<string> | undefined; where?: string | null | undefined; start?: number | bigint | string | null | undefined; end?: number | bigint | string | null | undefined; selected?: string | null | undefined; selected_start?: number | bigint | string | null | undefined; selected_end?: number | bigint | string | null | undefined; min_duration_ms?: number | null | undefined; max_duration_ms?: number | null | undefined; limit?: number | bigint | undefined; values?: number | bigint | undefined };
    answer: Fields;
  };
  "POST /api/v1/traces/erase": {
    body: { trace_ids?: Array<string> | null | undefined; where?: string | Record<string, string | number | bigint | number | boolean | Array<string | number | bigint | number | boolean>> | null | undefined; actor?: string | undefined; reason?: string | undefined; dry_run?: boolean | undefined; erasure_id?: string | null | undefined };
    answer: Fields;
  };
  "POST /api/v1/traces/expire": {
    body: { before: string; service?: string | Array<string> | null | undefined };
    answer: Fields;
  };
  "POST /api/v1/traces/export": {
    body: { trace_ids: Array<string> };
    answer: Fields;
  };
  "GET /api/v1/traces/heatmap": {
    query: { service?: string | null | undefined; operation?: string | null | undefined; text?: string | null | undefined; attribute?: Array<string> | undefined; where?: string | null | undefined; start?: number | bigint | string | null | undefined; end?: number | bigint | string | null | undefined; times?: number | bigint | undefined; min_duration_ms?: number | null | undefined; max_duration_ms?: number | null | undefined };
    answer: Fields;
  };
  "POST /api/v1/traces/heatmap": {
    body: { service?: string | null | undefined; operation?: string | null | undefined; text?: string | null | undefined; attributes?: Record<string, string | number | bigint | number | boolean | Array<string | number | bigint | number | boolean>> | null | undefined; attribute_pairs?: Array<string> | undefined; where?: string | null | undefined; start?: number | bigint | string | null | undefined; end?: number | bigint | string | null | undefined; times?: number | bigint | undefined; min_duration_ms?: number | null | undefined; max_duration_ms?: number | null | undefined };
    answer: Fields;
  };
  "GET /api/v1/traces/metrics": {
    query: { service?: string | null | undefined; operation?: string | null | undefined; kind?: string | null | undefined; start?: number | bigint | string | null | undefined; end?: number | bigint | string | null | undefined; step?: string | undefined; group_by?: Array<string> | string | null | undefined; where?: string | Record<string, string | number | bigint | number | boolean | Array<string | number | bigint | number | boolean>> | null | undefined; of?: string | undefined; quantile?: Array<number> | undefined };
    answer: Array<Fields>;
  };
  "POST /api/v1/traces/metrics": {
    body: { service?: string | null | undefined; operation?: string | null | undefined; kind?: string | null | undefined; start?: number | bigint | string | null | undefined; end?: number | bigint | string | null | undefined; step?: string | undefined; group_by?: Array<string> | string | null | undefined; where?: string | Record<string, string | number | bigint | number | boolean | Array<string | number | bigint | number | boolean>> | null | undefined; of?: string | undefined; quantiles?: Array<number> | undefined };
    answer: Array<Fields>;
  };
  "POST /api/v1/traces/otlp": {
    body: Fields;
    answer: Fields;
  };
  "DELETE /api/v1/traces/questions/{query_id}": {
    path: { query_id: string };
    answer: Fields;
  };
  "POST /api/v1/traces/search": {
    body: { service?: string | null | undefined; operation?: string | null | undefined; text?: string | null | undefined; attributes?: Record<string, string | number | bigint | number | boolean | Array<string | number | bigint | number | boolean>> | null | undefined; attribute_pairs?: Array<string> | undefined; where?: string | null | undefined; start?: number | bigint | string | null | undefined; end?: number | bigint | string | null | undefined; limit?: number | bigint | undefined; cursor?: string | null | undefined; order?: string | undefined; count?: boolean | undefined; has_errors?: boolean | null | undefined; min_duration_ms?: number | null | undefined; max_duration_ms?: number | null | undefined };
    answer: Fields;
  };
  "GET /api/v1/traces/sessions": {
    query: { service?: string | null | undefined; operation?: string | null | undefined; text?: string | null | undefined; attribute?: Array<string> | undefined; where?: string | null | undefined; start?: number | bigint | string | null | undefined; end?: number | bigint | string | null | undefined; offset?: number | bigint | undefined; limit?: number | bigint | undefined };
    answer: Fields;
  };
  "POST /api/v1/traces/sessions": {
    body: { service?: string | null | undefined; operation?: string | null | undefined; text?: string | null | undefined; attributes?: Record<string, string | number | bigint | number | boolean | Array<string | number | bigint | number | boolean>> | null | undefined; attribute_pairs?: Array<string> | undefined; where?: string | null | undefined; start?: number | bigint | string | null | undefined; end?: number | bigint | string | null | undefined; offset?: number | bigint | undefined; limit?: number | bigint | undefined };
    answer: Fields;
  };
  "POST /api/v1/traces/spans": {
    body: { service?: string | null | undefined; operation?: string | null | undefined; text?: string | null | undefined; attributes?: Record<string, string | number | bigint | number | boolean | Array<string | number | bigint | number | boolean>> | null | undefined; attribute_pairs?: Array<string> | undefined; where?: string | null | undefined; start?: number | bigint | string | null | undefined; end?: number | bigint | string | null | undefined; limit?: number | bigint | undefined; cursor?: string | null | undefined; order?: string | undefined; count?: boolean | undefined };
    answer: Fields;
  };
  "GET /api/v1/traces/usage": {
    query: { service?: string | null | undefined; operation?: string | null | undefined; text?: string | null | undefined; attribute?: Array<string> | undefined; where?: string | null | undefined; start?: number | bigint | string | null | undefined; end?: number | bigint | string | null | undefined; step?: string | null | undefined; group_by?: Array<string> | string | null | undefined };
    answer: Array<Fields>;
  };
  "POST /api/v1/traces/usage": {
    body: { service?: string | null | undefined; operation?: string | null | undefined; text?: string | null | undefined; attributes?: Record<string, string | number | bigint | number | boolean | Array<string | number | bigint | number | boolean>> | null | undefined; attribute_pairs?: Array<string> | undefined; where?: string | null | undefined; start?: number | bigint | string | null | undefined; end?: number | bigint | string | null | undefined; step?: string | null | undefined; group_by?: Array<string> | string | null | undefined };
    answer: Array<Fields>;
  };
  "GET /api/v1/traces/{trace_id}": {
    path: { trace_id: string };
    query: { offset?: number | bigint | undefined; limit?: number | bigint | undefined; depth?: number | bigint | null | undefined; under?: string | null | undefined; around?: string | null | undefined };
    answer: Fields;
  };
  "GET /api/v1/traces/{trace_id}/download": {
    path: { trace_id: string };
    query: { format?: string | undefined };
    answer: Fields;
  };
  "GET /api/v1/traces/{trace_id}/find": {
    path: { trace_id: string };
    query: { service?: string | null | undefined; operation?: string | null | undefined; text?: string | null | undefined; attribute?: Array<string> | undefined; where?: string | null | undefined; start?: number | bigint | string | null | undefined; end?: number | bigint | string | null | undefined; limit?: number | bigint | undefined };
    answer: Fields;
  };
  "POST /api/v1/traces/{trace_id}/find": {
    path: { trace_id: string };
    body: { service?: string | null | undefined; operation?: string | null | undefined; text?: string | null | undefined; attributes?: Record<string, string | number | bigint | number | boolean | Array<string | number | bigint | number | boolean>> | null | undefined; attribute_pairs?: Array<string> | undefined; where?: string | null | undefined; start?: number | bigint | string | null | undefined; end?: number | bigint | string | null | undefined; limit?: number | bigint | undefined };
    answer: Fields;
  };
  "GET /api/v1/traces/{trace_id}/messages": {
    path: { trace_id: string };
    query: { span_id?: string | null | undefined; offset?: number | bigint | undefined; limit?: number | bigint | undefined; max_chars?: number | bigint | undefined };
    answer: Fields;
  };
  "GET /api/v1/traces/{trace_id}/otlp": {
    path: { trace_id: string };
    answer: Fields;
  };
  "GET /api/v1/traces/{trace_id}/place": {
    path: { trace_id: string };
    query: { span_id: string };
    answer: Fields;
  };
  "GET /api/v1/traces/{trace_id}/skeleton": {
    path: { trace_id: string };
    query: { limit?: number | bigint | undefined };
    answer: Fields;
  };
  "GET /api/v1/traces/{trace_id}/spans": {
    path: { trace_id: string };
    answer: Fields;
  };
  "GET /api/v1/upkeep": {
    query: { name?: Array<string> | undefined; storage?: boolean | undefined };
    answer: Array<Fields>;
  };
}
