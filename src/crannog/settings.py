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

    warehouse: str = Field("warehouse", description="Folder, file:// or s3:// address that holds everything.")
    server: str = Field(
        "",
        description="Address of a server (http:// or https://) that the command line works through; empty works on the warehouse.",
    )
    token: str = Field("", repr=False, description="Token that the command line shows to a server.")
    build_log: str = Field("", description="URI of the build log; if empty, it is a Delta table in the warehouse.")
    host: str = Field("127.0.0.1", description="Address the server listens on.")
    port: int = Field(7117, ge=0, le=65535, description="Port of the HTTP API and the pages.")
    otlp: bool = Field(True, description="Whether the server takes spans over OTLP.")
    otlp_http_port: int = Field(4318, ge=0, le=65535, description="Port of OTLP over HTTP.")
    otlp_grpc_port: int = Field(4317, ge=0, le=65535, description="Port of OTLP over gRPC.")
    otlp_request_bytes: int = Field(
        64 * MIB, ge=1 * KIB, le=1 * GIB, description="Largest OTLP or Zipkin request, after unpacking."
    )
    trace_spans_limit: int = Field(
        100_000, ge=1, le=10_000_000, description="Most spans of one trace that are read at once."
    )
    trace_tree_spans_limit: int = Field(
        2_000_000,
        ge=1,
        le=100_000_000,
        description="Most spans of one trace whose tree is worked out, to be shown in windows.",
    )
    tls_certificate: str = Field(
        "", description="File with the server's certificate chain (PEM); with `tls_key` the server speaks HTTPS."
    )
    tls_key: str = Field("", description="File with the certificate's private key (PEM).")
    http_body_bytes: int = Field(
        512 * MIB, ge=1 * KIB, le=64 * GIB, description="Largest body of a request, as it comes and unpacked."
    )
    http_bodies_bytes: int = Field(
        2 * GIB, ge=1 * KIB, description="Most bytes of request bodies held at once; beyond, callers are told to wait."
    )
    http_stall_s: float = Field(
        30,
        gt=0,
        le=3600,
        description="Silence after which a client in the middle of a request or an answer is cut off.",
    )
    http_request_s: float = Field(
        300,
        gt=0,
        le=86_400,
        description="Longest time for a request; SQL, questions about traces and jobs have limits of their own.",
    )
    http_keep_alive_s: int = Field(75, ge=1, le=3600, description="How long an idle connection stays open.")
    http_requests: int = Field(
        5_000, ge=1, le=1_000_000, description="Requests served at once; beyond, callers are told to wait."
    )
    http_threads: int = Field(
        256, ge=4, le=10_000, description="Threads in which writes wait for their commit; as many again for reads."
    )
    rate_per_s: float = Field(
        1_000, ge=0, description="Requests per second of one token or address; 0 sets no limit. Loopback has none."
    )
    rate_burst: int = Field(
        2_000, ge=1, description="Requests that one token or address may send at once before the rate counts."
    )
    audit: bool = Field(
        True, description="Whether the server keeps an audit of requests, the table crannog.system.audit."
    )
    audit_days: int = Field(90, ge=1, le=36_500, description="How long the audit is kept.")
    log_format: Literal["text", "json"] = Field("text", description="Form of the server's log lines, text or json.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "warning", description="Least serious log lines that are shown; info shows each request."
    )
    spans_endpoint: str = Field(
        "", description="OTLP over HTTP address that the server sends spans of its own work to; empty sends none."
    )

    spark_master: str = Field("local[*]", description="Spark master; local[*] runs Spark inside the process.")
    spark_remote: str = Field(
        "", repr=False, description="Spark Connect address (sc://…); used instead of a master when set."
    )
    spark_secret_file: str = Field(
        "", description="File, mode 600, with the secret of a standalone Spark cluster; local Spark makes its own."
    )
    spark_memory_mb: int = Field(
        0,
        ge=0,
        le=1_048_576,
        description="Memory of the embedded JVM in MiB; 0 takes a quarter of the machine's, 1 to 8 GiB.",
    )
    spark_nice: int = Field(
        12,
        ge=0,
        le=19,
        description="How far the embedded JVM steps back for reads and writes where processors are short; 0 not at all.",
    )
    spark_start_timeout_s: float = Field(120, gt=0, le=3600, description="How long a job waits for Spark to start.")
    spark_at_start: bool = Field(
        True, description="Whether `serve` starts Spark at once, behind, or when it is first needed."
    )
    java_home: str = Field(
        "", description="Java 17 or later to use; empty looks at JAVA_HOME, PATH and the usual folders."
    )
    jars_dir: str = Field("", description="Folder of the Delta jars; empty keeps them in the user's cache folder.")

    cache_bytes: int = Field(
        default_factory=lambda: min(16 * GIB, _half_of_memory()), ge=0, description="Memory for hot tables."
    )

    group_commit_rows: int = Field(
        100_000, ge=1, le=10_000_000, description="Most rows that concurrent callers share one staged file for."
    )
    queue_calls: int = Field(1_000, ge=1, le=1_000_000, description="Calls that may wait for one table's writer.")
    max_rows_per_call: int = Field(2_000_000, ge=1, le=100_000_000, description="Most rows one append or upsert takes.")
    staged_rows_limit: int = Field(
        5_000_000, ge=1, description="Staged rows of one table at which writers are told to wait."
    )
    staged_bytes_limit: int = Field(
        2 * GIB, ge=1 * KIB, description="Staged bytes in memory of one table at which writers are told to wait."
    )
    load_spark_bytes: int = Field(
        1 * GIB, ge=1, description="Size of a file from which a load into a table without a key goes through Spark."
    )
    dedup_window_s: float = Field(
        24 * 3600, ge=0, description="How long a batch id is remembered after its rows were folded."
    )
    dedup_window_batches: int = Field(
        1_000_000, ge=0, description="Most batch ids remembered after their rows were folded."
    )
    pack_bytes: int = Field(
        16 * MIB, ge=0, le=1 * GIB, description="Largest block of staged files worth packing into one."
    )

    fold_rows: int = Field(200_000, ge=1, description="Staged rows at which the scheduler folds.")
    fold_bytes: int = Field(128 * MIB, ge=1, description="Staged bytes at which the scheduler folds.")
    fold_age_s: float = Field(300, gt=0, description="Age of the oldest staged change at which the scheduler folds.")
    fold_share: float = Field(
        0.05, gt=0, le=1, description="Share of a keyed table's rows at which the scheduler folds."
    )
    fold_grace_s: float = Field(3600, ge=0, description="How long folded staged files stay.")
    orphan_grace_s: float = Field(24 * 3600, ge=0, description="How long files of unfinished jobs stay.")
    retention_s: float = Field(7 * 24 * 3600, ge=0, description="How long removed files stay for time travel.")
    retention_floor_s: float = Field(3600, ge=0, description="Shortest retention a vacuum uses unless forced.")
    target_file_bytes: int = Field(128 * MIB, ge=1 * MIB, le=4 * GIB, description="File size that compaction aims at.")
    keyed_file_bytes: int = Field(
        32 * MIB, ge=1 * MIB, le=4 * GIB, description="File size that compaction of keyed tables aims at."
    )
    compact_interval_s: float = Field(3600, gt=0, description="Time between looks at what to compact.")
    vacuum_interval_s: float = Field(6 * 3600, gt=0, description="Time between vacuums.")
    expire_interval_s: float = Field(
        24 * 3600, gt=0, description="Time between expiries of tables, spans and build events that have a retention."
    )
    table_retention_days: DaysByName = Field(
        {},
        description="Days that rows of tables are kept, by name or pattern, as `shop.logs.events=30,shop.tmp.*=7`; the first that fits counts.",
    )
    derive_interval_s: float = Field(
        60, ge=0, description="Shortest time between derives of trace summaries, metrics, edges and attributes."
    )
    trace_retention_days: int | None = Field(
        None, ge=1, le=36_500, description="Days that spans are kept, and what is derived from them; none: for ever."
    )
    trace_service_retention_days: DaysByName = Field(
        {},
        description="Days that spans of single services are kept instead, as `checkout=7,web=30` or a table of `crannog.toml`.",
    )
    build_retention_days: int | None = Field(
        None, ge=1, le=36_500, description="Days that events of the build log are kept; none: for ever."
    )
    build_retention_events: int | None = Field(
        None, ge=1, description="Newest events that the build log keeps; none: all. Older ones are pruned."
    )
    scheduler_tick_s: float = Field(2, ge=0.05, le=3600, description="How often the scheduler looks for due work.")
    claim_lease_s: float = Field(60, gt=0, description="Silence after which another process takes over a claimed task.")
    lease_wait_s: float = Field(30, ge=0, description="How long an erase waits for readers before it wins.")

    default_catalog: str = Field("main", description="Catalog of a table name in SQL that gives none.")
    default_schema: str = Field("default", description="Schema of a table name in SQL that gives none.")
    sql_max_rows: int = Field(
        10_000, ge=1, le=1_000_000_000, description="Rows a query returns unless it asks for more."
    )
    sql_rows_ceiling: int = Field(
        5_000_000, ge=1, le=1_000_000_000, description="Most rows a query may ask for; streams have no such limit."
    )
    sql_result_bytes: int = Field(
        1 * GIB, ge=1 * KIB, description="Largest result held in memory; a larger one must be streamed."
    )
    sql_timeout_s: float = Field(
        300,
        gt=0,
        le=86_400,
        description="Time after which a query, or a question about traces, is ended unless it asks for another.",
    )
    sql_text_bytes: int = Field(1 * MIB, ge=100, le=64 * MIB, description="Longest statement.")
    sql_running: int = Field(
        16, ge=1, le=10_000, description="Queries that run at once; as many questions about traces."
    )
    sql_waiting: int = Field(
        256, ge=0, le=100_000, description="Queries that may wait for their turn; as many questions about traces."
    )
    local_scan_bytes: int = Field(
        4 * GIB, ge=0, description="Most bytes of files, after pruning, that a query reads without Spark."
    )
    local_temp_mb: int = Field(
        16_384, ge=0, description="Most disk that the in-process query engine spills to, in MiB."
    )
    cache_auto_reads: int = Field(
        0, ge=0, description="Reads within a minute after which a table is loaded into memory by itself; 0 never."
    )

    open_tables: int = Field(50, ge=1, le=100_000, description="Tables open at once in one process.")
    idle_close_s: float = Field(1800, gt=0, description="Time without use after which a table closes.")
    refresh_ms: int = Field(
        1_000, ge=0, le=3_600_000, description="On object stores, how old a snapshot may be when a read uses it."
    )
    local_memory_mb: int = Field(2_048, ge=64, description="Memory of the in-process query engine in MiB.")

    @field_validator("table_retention_days", "trace_service_retention_days", mode="before")
    @classmethod
    def _days_by_name(cls, given: Any) -> Any:
        if not isinstance(given, str):
            return given
        pairs = [part.rpartition("=") for part in given.split(",") if part.strip()]
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
            f"cannot read the settings in {Path('crannog.toml').resolve()}: {error}; mend it or take it away"
        ) from None


def unknown_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that look like settings and are none, each with the one that is nearest, or nothing.

    They are told, not refused: where containers run, others may set variables of that form.
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
