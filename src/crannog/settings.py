"""Every setting, its unit in its name, its bounds beside it: environment `CRANNOG_*` or `crannog.toml`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from tomllib import TOMLDecodeError
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from crannog.errors import CallerError

KIB, MIB, GIB = 1024, 1024**2, 1024**3
_PREFIX = "CRANNOG_"


def _half_of_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


DaysByName = Annotated[dict[str, Annotated[int, Field(ge=1, le=36_500)]], NoDecode]


class Settings(BaseSettings):
    """What a process may be told; the defaults suit one machine."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, toml_file="crannog.toml", extra="forbid", frozen=True)

    warehouse: str = Field("warehouse", description="Folder, file:// or s3:// address of the warehouse.")
    warehouse_mode: str = Field(
        "0700",
        pattern="^0?7[0-7][0-7]$",
        description="Permissions of the warehouse's folder if it is created, as of chmod: 0700 is for its user alone, 0750 lets the group read.",
    )
    server: str = Field(
        "",
        description="Address of the server (http:// or https://) that the command line uses; if empty, it opens the warehouse.",
    )
    token: str = Field("", repr=False, description="Token that the command line sends to the server.")
    build_log: str = Field("", description="URI of the build log; if empty, it is a Delta table in the warehouse.")
    host: str = Field("127.0.0.1", description="Address the server listens on.")
    port: int = Field(7117, ge=0, le=65535, description="Port of the HTTP API and the pages.")
    otlp: bool = Field(True, description="Whether the server accepts spans over OTLP.")
    otlp_http_port: int = Field(4318, ge=0, le=65535, description="Port of OTLP over HTTP.")
    otlp_grpc_port: int = Field(4317, ge=0, le=65535, description="Port of OTLP over gRPC.")
    otlp_request_bytes: int = Field(
        64 * MIB, ge=1 * KIB, le=1 * GIB, description="Maximum size of an OTLP or Zipkin request, decompressed."
    )
    trace_spans_limit: int = Field(
        100_000, ge=1, le=10_000_000, description="Maximum number of spans of a trace read at once."
    )
    trace_tree_spans_limit: int = Field(
        2_000_000,
        ge=1,
        le=100_000_000,
        description="Maximum number of spans of a trace whose tree is built, to be shown in windows.",
    )
    tls_certificate: str = Field(
        "", description="File with the server's certificate chain (PEM); with `tls_key` the server uses HTTPS."
    )
    tls_key: str = Field("", description="File with the certificate's private key (PEM).")
    http_body_bytes: int = Field(
        512 * MIB, ge=1 * KIB, le=64 * GIB, description="Maximum size of a request body, compressed and decompressed."
    )
    http_bodies_bytes: int = Field(
        2 * GIB, ge=1 * KIB, description="Maximum bytes of all request bodies in memory; more get 429."
    )
    http_stall_s: float = Field(
        30,
        gt=0,
        le=3600,
        description="Time without data after which a client in the middle of a request or response is disconnected.",
    )
    http_request_s: float = Field(
        300,
        gt=0,
        le=86_400,
        description="Timeout of a request; SQL, trace queries and jobs have their own.",
    )
    http_keep_alive_s: int = Field(75, ge=1, le=3600, description="Time after which an idle connection is closed.")
    http_requests: int = Field(5_000, ge=1, le=1_000_000, description="Maximum concurrent requests; more get 429.")
    http_connections: int = Field(
        5_000,
        ge=1,
        le=1_000_000,
        description="Maximum connections to all ports, at most half of the files that the process may open; more get 503.",
    )
    http_connections_per_address: int = Field(
        2_000, ge=1, le=1_000_000, description="Maximum connections of one address to all ports; more get 503."
    )
    http_threads: int = Field(
        256,
        ge=4,
        le=10_000,
        description="Number of threads for writes that wait for their commit; reads have the same number.",
    )
    rate_per_s: float = Field(
        1_000,
        ge=0,
        description="Maximum requests per second of one token or address; 0 means no limit. Loopback has no limit. Where tokens are required, requests without a valid one have a tenth of it by address, on loopback too.",
    )
    rate_burst: int = Field(
        2_000, ge=1, description="Number of requests that one token or address may send in a burst above the rate."
    )
    audit: bool = Field(True, description="Whether the server records requests in the table crannog.system.audit.")
    audit_days: int = Field(90, ge=1, le=36_500, description="Retention of the audit in days.")
    log_format: Literal["text", "json"] = Field("text", description="Format of the server's log: text or json.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "warning", description="Lowest level to log; info logs each request."
    )
    spans_endpoint: str = Field(
        "", description="OTLP/HTTP address to which the server sends its own spans; if empty, it sends none."
    )

    spark_master: str = Field("local[*]", description="Spark master; local[*] runs Spark inside the process.")
    spark_remote: str = Field(
        "", repr=False, description="Spark Connect address (sc://…); if set, it replaces the master."
    )
    spark_secret_file: str = Field(
        "", description="File, mode 600, with the secret of a standalone Spark cluster; local Spark generates its own."
    )
    spark_python: str = Field(
        "",
        description="Python program of Spark's tasks, with pyarrow and duckdb; if empty, this Python for local Spark, python3 on a cluster.",
    )
    spark_memory_mb: int = Field(
        0,
        ge=0,
        le=1_048_576,
        description="Heap of the embedded JVM in MiB; 0 means a quarter of the machine's memory, 1 to 8 GiB.",
    )
    spark_temp_mb: int = Field(
        65_536,
        ge=0,
        description="Maximum disk space for temporary files of the embedded JVM in MiB; beyond it, the longest statement ends. 0 means no limit.",
    )
    spark_nice: int = Field(
        12,
        ge=0,
        le=19,
        description="Nice value of the embedded JVM, which lowers its priority on a busy machine; 0 does not.",
    )
    spark_start_timeout_s: float = Field(
        120,
        gt=0,
        le=3600,
        description="How long a job waits for Spark to start; beyond that, as long as its Java process makes progress.",
    )
    spark_at_start: bool = Field(
        True, description="Whether `serve` starts Spark at once, in the background, or on first use."
    )
    java_home: str = Field(
        "", description="Home of Java 17 or later; if empty, JAVA_HOME, PATH and the usual folders are searched."
    )
    jars_dir: str = Field("", description="Folder of the Delta jars; if empty, they are in the user's cache folder.")

    cache_bytes: int = Field(
        default_factory=lambda: min(16 * GIB, _half_of_memory()), ge=0, description="Memory for hot tables."
    )

    group_commit_rows: int = Field(
        100_000, ge=1, le=10_000_000, description="Maximum rows of concurrent calls committed in one staged file."
    )
    queue_calls: int = Field(
        1_000, ge=1, le=1_000_000, description="Maximum number of calls that wait for a table's writer; more get 429."
    )
    max_rows_per_call: int = Field(2_000_000, ge=1, le=100_000_000, description="Maximum rows of one append or upsert.")
    staged_rows_limit: int = Field(
        5_000_000,
        ge=1,
        description="Maximum staged rows of a table; beyond an eighth of it writers are slowed down, at the limit they get 429.",
    )
    staged_bytes_limit: int = Field(
        2 * GIB,
        ge=1 * KIB,
        description="Maximum staged bytes of a table in memory; beyond an eighth writers are slowed down, at the limit they get 429.",
    )
    load_spark_bytes: int = Field(
        1 * GIB, ge=1, description="Minimum file size for a load through Spark into a table without a key."
    )
    dedup_window_s: float = Field(
        24 * 3600, ge=0, description="How long a batch id is kept for deduplication after its rows were folded."
    )
    dedup_window_batches: int = Field(
        1_000_000, ge=0, description="Maximum number of batch ids kept for deduplication after their rows were folded."
    )
    pack_bytes: int = Field(
        16 * MIB, ge=0, le=1 * GIB, description="Maximum size of a block of staged files to merge into a pack."
    )

    fold_rows: int = Field(300_000, ge=1, description="Staged rows at which the scheduler folds.")
    fold_bytes: int = Field(192 * MIB, ge=1, description="Staged bytes at which the scheduler folds.")
    fold_age_s: float = Field(300, gt=0, description="Age of the oldest staged change at which the scheduler folds.")
    fold_share: float = Field(
        0.05, gt=0, le=1, description="Share of a keyed table's rows at which the scheduler folds."
    )
    fold_grace_s: float = Field(3600, ge=0, description="How long folded staged files are kept.")
    orphan_grace_s: float = Field(24 * 3600, ge=0, description="How long files of unfinished jobs are kept.")
    retention_s: float = Field(7 * 24 * 3600, ge=0, description="How long removed files are kept for time travel.")
    retention_floor_s: float = Field(3600, ge=0, description="Minimum retention of a vacuum unless forced.")
    target_file_bytes: int = Field(128 * MIB, ge=1 * MIB, le=4 * GIB, description="Target file size of compaction.")
    keyed_file_bytes: int = Field(
        32 * MIB, ge=1 * MIB, le=4 * GIB, description="Target file size of compaction in keyed tables."
    )
    compact_interval_s: float = Field(60, gt=0, description="Minimum time between compactions of a table.")
    vacuum_interval_s: float = Field(6 * 3600, gt=0, description="Time between vacuums.")
    expire_interval_s: float = Field(
        24 * 3600, gt=0, description="Time between expiries of tables, spans and build events that have a retention."
    )
    table_retention_days: DaysByName = Field(
        {},
        description="Retention of tables in days, by name or pattern, as `shop.logs.events=30,shop.tmp.*=7`; the first match counts.",
    )
    derive_interval_s: float = Field(20, ge=0, description="Minimum time between updates of the derived trace tables.")
    trace_retention_days: int | None = Field(
        None, ge=1, le=36_500, description="Retention of spans and their derived rows in days; none keeps them forever."
    )
    trace_service_retention_days: DaysByName = Field(
        {},
        description="Retention of the spans of single services in days instead, as `checkout=7,web=30` or a table of `crannog.toml`.",
    )
    build_retention_days: int | None = Field(
        None, ge=1, le=36_500, description="Retention of build events in days; none keeps them forever."
    )
    build_retention_events: int | None = Field(
        None, ge=1, description="Maximum number of events in the build log; older ones are pruned. None keeps all."
    )
    scheduler_tick_s: float = Field(
        2, ge=0.05, le=3600, description="Time between the scheduler's checks for due tasks."
    )
    claim_lease_s: float = Field(
        60, gt=0, description="Time without a heartbeat after which another process takes over a claimed task."
    )
    lease_wait_s: float = Field(
        30, ge=0, description="How long an erase waits for readers before it deletes their files."
    )

    default_catalog: str = Field("main", description="Default catalog of table names in SQL.")
    default_schema: str = Field("default", description="Default schema of table names in SQL.")
    sql_max_rows: int = Field(10_000, ge=1, le=1_000_000_000, description="Default maximum rows of a query.")
    sql_rows_ceiling: int = Field(
        5_000_000,
        ge=1,
        le=1_000_000_000,
        description="Upper limit for the maximum rows of a query; streams have no limit.",
    )
    sql_result_bytes: int = Field(
        1 * GIB, ge=1 * KIB, description="Maximum size of a result in memory; a larger one must be streamed."
    )
    sql_timeout_s: float = Field(
        300,
        gt=0,
        le=86_400,
        description="Default timeout of a query, also of a trace query.",
    )
    sql_text_bytes: int = Field(1 * MIB, ge=100, le=64 * MIB, description="Maximum length of a statement.")
    sql_running: int = Field(
        16, ge=1, le=10_000, description="Maximum concurrent queries; trace queries have the same limit of their own."
    )
    sql_waiting: int = Field(
        256,
        ge=0,
        le=100_000,
        description="Maximum number of waiting queries; trace queries have the same limit of their own.",
    )
    local_scan_bytes: int = Field(
        4 * GIB, ge=0, description="Maximum bytes of files, after pruning, that a query reads without Spark."
    )
    local_temp_mb: int = Field(16_384, ge=0, description="Maximum disk space for DuckDB's spill files in MiB.")
    cache_auto_reads: int = Field(
        0,
        ge=0,
        description="Reads within a minute after which a table is loaded into memory automatically; 0 means never.",
    )

    open_tables: int = Field(50, ge=1, le=100_000, description="Maximum number of open tables in a process.")
    idle_close_s: float = Field(1800, gt=0, description="Time without use after which a table is closed.")
    refresh_ms: int = Field(
        1_000, ge=0, le=3_600_000, description="On object stores, the maximum age of a snapshot that a read uses."
    )
    local_memory_mb: int = Field(
        2_048, ge=64, description="Memory of DuckDB for queries in MiB; hot tables take theirs in addition."
    )

    @property
    def folder_mode(self) -> int:
        """The permissions of a new warehouse as a number."""
        return int(self.warehouse_mode, 8)

    @field_validator("table_retention_days", "trace_service_retention_days", mode="before")
    @classmethod
    def _days_by_name(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        pairs = [part.rpartition("=") for part in value.split(",") if part.strip()]
        if not all(name.strip() and days.strip() for name, _, days in pairs):
            raise ValueError("it is a list of name=days, such as checkout=7,web=30")
        return {name.strip(): days.strip() for name, _, days in pairs}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments win over the environment, the environment over `crannog.toml`."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def load_settings(**overrides: Any) -> Settings:
    """Read the settings of this process; raises CallerError that names each wrong one and where it came from."""
    try:
        return Settings(**overrides)
    except ValidationError as error:
        lines = [
            f"setting {'.'.join(map(str, item['loc']))}: {item['msg'].removeprefix('Value error, ')}, got {item.get('input')!r}"
            for item in error.errors()
        ]
        raise CallerError("; ".join(lines) + f" (from arguments, CRANNOG_* or {Path('crannog.toml')})") from None
    except (TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise CallerError(
            f"cannot read the settings in {Path('crannog.toml').resolve()}: {error}; correct or remove it"
        ) from None


def unknown_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that look like settings and are none, each with the nearest setting, or nothing.

    They are reported, not refused: where containers run, others may set variables of that form.
    """
    known = [_PREFIX + name.upper() for name in Settings.model_fields]
    strange = [name for name in environment if name.startswith(_PREFIX) and name not in known]
    return {name: next(iter(get_close_matches(name, known, 1)), "") for name in sorted(strange)}


def reference() -> str:
    """Return the page that lists every setting."""
    lines = [
        "# Settings",
        "",
        "Each is an environment variable, `CRANNOG_` and its name in capitals, or a line of `crannog.toml` in the working",
        "folder (`name = value`), or a keyword of `crannog.connect`. Arguments win over the environment, the environment",
        "over the file.",
        "",
        "| setting | default | |",
        "|---|---|---|",
    ]
    for name, field in Settings.model_fields.items():
        default = "half of memory, at most 16 GiB" if field.default_factory else repr(field.default)
        lines.append(f"| `{name}` | {default} | {field.description} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(reference(), end="")
