"""The doctor finds what is wrong, says what to do, and changes nothing."""

from __future__ import annotations

import errno
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import obstore
import pytest
from typer.testing import CliRunner

from crannog.cli import doctor_checks
from crannog.cli import main as cli
from crannog.settings import GIB, Settings

pytest_plugins = ["s3"]


def by_name(checks: object) -> dict[str, doctor_checks.Check]:
    return {check.name: check for check in checks}  # type: ignore[attr-defined]


def test_a_fit_machine_has_no_complaints_and_stays_as_it_was(settings: Settings, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    checks = doctor_checks.examine(settings)
    assert [check for check in checks if not check.ok] == []
    assert all(check.found and not check.advice for check in checks)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_variable_that_looks_like_a_setting_and_is_none_is_told() -> None:
    check = doctor_checks.check_settings(
        {"CRANNOG_PORT": "1", "CRANNOG_LOG_FORMATT": "json", "CRANNOG_ZZZ": "1", "PATH": ""}
    )
    assert not check.ok
    assert "CRANNOG_LOG_FORMATT (did you mean CRANNOG_LOG_FORMAT?), CRANNOG_ZZZ" in check.found
    assert doctor_checks.check_settings({"CRANNOG_PORT": "1", "HOME": "x"}).ok


def test_missing_java_is_told_with_advice(settings: Settings, tmp_path: Path) -> None:
    check = doctor_checks.check_java(settings.model_copy(update={"java_home": str(tmp_path)}))
    assert not check.ok
    assert check.found == f"java_home is {tmp_path}, which has no working bin/java"
    assert check.advice.startswith("install")
    assert "apt-get" in check.advice


def test_missing_and_damaged_jars_are_told(settings: Settings, tmp_path: Path) -> None:
    settings = settings.model_copy(update={"jars_dir": str(tmp_path / "jars"), "warehouse": "s3://bucket/lake"})
    checks = by_name(doctor_checks.check_jars(settings))
    assert not checks["delta jars"].ok
    assert "python -m crannog.spark.jars --s3" in checks["s3 jars"].advice


def test_a_remote_spark_needs_neither_java_nor_jars(settings: Settings) -> None:
    settings = settings.model_copy(update={"spark_remote": "sc://host", "java_home": "nowhere", "jars_dir": "nowhere"})
    assert doctor_checks.check_java(settings).ok
    assert list(doctor_checks.check_jars(settings)) == []


@pytest.mark.parametrize(
    ("machine", "heap_mb", "ok"),
    [(16 * GIB, 0, True), (1 * GIB, 0, False), (4 * GIB, 3_500, False), (4 * GIB, 2_048, True)],
)
def test_memory_must_hold_the_heap(settings: Settings, machine: int, heap_mb: int, ok: bool) -> None:
    check = doctor_checks.check_memory(settings.model_copy(update={"spark_memory_mb": heap_mb}), machine)
    assert check.ok is ok
    assert bool(check.advice) is not ok


def test_a_folder_that_cannot_be_written_is_told(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(doctor_checks.tempfile, "mkdtemp", refuse)
    check = by_name(doctor_checks.check_warehouse(settings))["warehouse"]
    assert not check.ok
    assert "Permission denied" in check.found
    assert "CRANNOG_WAREHOUSE" in check.advice


@pytest.mark.parametrize(("call", "words"), [("link", "no hard links"), ("fsync", "no fsync")])
def test_a_file_system_without_what_commits_need_is_told(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, call: str, words: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, call, refuse)
    check = by_name(doctor_checks.check_warehouse(settings))["warehouse"]
    assert not check.ok
    assert words in check.found


def test_locks_that_lock_nothing_are_told(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_checks.fcntl, "flock", lambda *_: None)
    assert (
        "file locks do not exclude other processes"
        in by_name(doctor_checks.check_warehouse(settings))["warehouse"].found
    )


def test_a_full_disk_is_told(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_checks, "LEAST_DISK", 1 << 80)
    assert not by_name(doctor_checks.check_warehouse(settings))["disk"].ok


@pytest.mark.parametrize("wrong_by", [-10_000_000_000, 3600, -3600])
def test_a_wrong_clock_is_told(settings: Settings, wrong_by: float) -> None:
    import time

    check = by_name(doctor_checks.check_warehouse(settings, lambda: max(0.0, time.time() + wrong_by)))["clock"]
    assert not check.ok
    assert "NTP" in check.advice


def test_a_bucket_must_honour_conditional_puts_and_stays_as_it_was(
    settings: Settings, s3_location: str, s3_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_s3 = settings.model_copy(update={"warehouse": s3_location})
    checks = by_name(doctor_checks.check_warehouse(on_s3))
    assert checks["warehouse"].ok
    assert "supports lists, writes and conditional puts" in checks["warehouse"].found
    assert "disk" not in checks
    assert "Contents" not in s3_client.list_objects_v2(Bucket=s3_location.split("/")[2])
    put: Any = obstore.put
    monkeypatch.setattr(obstore, "put", lambda store, key, data, mode=None: put(store, key, data))
    check = by_name(doctor_checks.check_warehouse(on_s3))["warehouse"]
    assert not check.ok
    assert "ignores the condition" in check.found
    assert check.advice.startswith("use a store with conditional puts")


def test_a_missing_bucket_is_reported(settings: Settings, s3_server: str) -> None:
    check = by_name(doctor_checks.check_warehouse(settings.model_copy(update={"warehouse": "s3://no-bucket/lake"})))
    assert not check["warehouse"].ok
    assert "does not exist" in check["warehouse"].found
    assert "create it" in check["warehouse"].advice


def test_a_file_address_is_a_folder(settings: Settings, tmp_path: Path) -> None:
    checks = by_name(
        doctor_checks.check_warehouse(settings.model_copy(update={"warehouse": (tmp_path / "a b").as_uri()}))
    )
    assert checks["warehouse"].found.startswith(str(tmp_path / "a b"))


def test_a_port_in_use_is_told_with_its_setting(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        checks = by_name(doctor_checks.check_ports(settings.model_copy(update={"otlp_grpc_port": port})))
    assert checks["port"].ok
    assert not checks["otlp grpc port"].ok
    assert "CRANNOG_OTLP_GRPC_PORT" in checks["otlp grpc port"].advice


def test_a_package_of_another_version_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_checks, "_PINNED", {"pyspark": "9.9.9"})
    check = doctor_checks.check_packages()
    assert not check.ok
    assert "pyspark==9.9.9" in check.advice


def test_the_command_answers_in_json_and_by_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PORT", "OTLP_HTTP_PORT", "OTLP_GRPC_PORT"):
        monkeypatch.setenv(f"CRANNOG_{name}", "0")
    fit = CliRunner().invoke(cli.app, ["--warehouse", str(tmp_path), "doctor", "--json"])
    assert fit.exit_code == 0
    assert {"name", "ok", "found", "advice"} == set(json.loads(fit.output)[0])
    monkeypatch.setenv("CRANNOG_JAVA_HOME", str(tmp_path))
    unfit = CliRunner().invoke(cli.app, ["--warehouse", str(tmp_path), "doctor"])
    assert unfit.exit_code == 5
    assert "java" in unfit.output


def test_an_error_is_one_line_and_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["crannog", "--warehouse", "a", "--server", "b", "doctor"])
    with pytest.raises(SystemExit) as ended:
        cli.run()
    assert ended.value.code == 2
    assert capsys.readouterr().err == "crannog: give --warehouse or --server, not both\n"


def test_help_loads_neither_spark_nor_the_engine() -> None:
    import subprocess
    import sys

    program = "import sys, crannog.cli.main; print([m for m in ('pyspark', 'pyarrow', 'pydantic', 'duckdb', 'crannog.spark.session') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
        == "[]"
    )


def test_a_damaged_checkpoint_and_a_time_in_the_future_are_named(settings: Settings, tmp_path: Path) -> None:
    log = tmp_path / "shop" / "eu" / "orders" / "_delta_log"
    log.mkdir(parents=True)
    for version in range(3):
        (log / f"{version:020}.json").write_text("{}\n")
    settings = settings.model_copy(update={"warehouse": str(tmp_path)})
    assert all(check.ok for check in doctor_checks.check_warehouse(settings))
    torn = log / f"{2:020}.checkpoint.parquet"
    torn.write_bytes(b"PAR1 and no more")
    [logs] = [check for check in doctor_checks.check_warehouse(settings) if check.name == "logs"]
    assert not logs.ok
    assert "shop/eu/orders/_delta_log/00000000000000000002.checkpoint.parquet" in logs.found
    assert "no data is lost" in logs.advice
    assert torn.exists(), "a check changes nothing"
    (log / f"{0:020}.json").unlink()
    [logs] = [check for check in doctor_checks.check_warehouse(settings) if check.name == "logs"]
    assert "backup" in logs.advice
    ahead = time.time() + 6 * 3600
    os.utime(log / f"{1:020}.json", (ahead, ahead))
    [times] = [check for check in doctor_checks.check_warehouse(settings) if check.name == "times"]
    assert not times.ok
    assert "00000000000000000001.json" in times.found
    assert "set back" in times.found
