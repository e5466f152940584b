"""One session per process, from any thread, anew after its Java process died, and a clear word when it cannot be."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from pyspark import SparkContext

from crannog.errors import CallerError, Cancelled, Conflict, NotFound, SparkLost, Unavailable
from crannog.settings import GIB, Settings
from crannog.spark import configuration, jars
from crannog.spark.errors import shortened
from crannog.spark.session import SparkRuntime, in_pool, spark_runtime, translated


def failure(spark: SparkRuntime, statement: str) -> BaseException:
    with pytest.raises(Exception) as raised:
        spark.session().sql(statement).collect()
    return translated(raised.value)


def test_without_java_a_job_is_unavailable_with_advice(settings: Settings, tmp_path: Path) -> None:
    runtime = SparkRuntime(settings.model_copy(update={"java_home": str(tmp_path)}))
    assert runtime.state() == "absent"
    for _ in range(2):
        with pytest.raises(Unavailable, match="CRANNOG_JAVA_HOME"):
            runtime.session()
        assert runtime.state() == "failed"
    runtime.stop()
    assert runtime.state() == "stopped"


def test_without_jars_and_network_a_job_is_unavailable(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> list[Path]:
        raise Unavailable("cannot resolve the delta jars")

    monkeypatch.setattr(jars, "_fetch", refuse)
    runtime = SparkRuntime(settings.model_copy(update={"jars_dir": str(tmp_path / "jars")}))
    with pytest.raises(Unavailable, match="cannot resolve the delta jars"):
        runtime.session()


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a runtime of the test's own start beside the Spark of the run: a start refuses if the process has a session."""
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)


@pytest.mark.usefixtures("no_session")
def test_the_error_of_a_java_process_that_ends_at_start_has_its_words(settings: Settings, tmp_path: Path) -> None:
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text('JAVA_VERSION="17.0.1"')
    (home / "bin" / "java").write_text("#!/bin/sh\necho 'Error: could not reserve enough space' >&2\nexit 1\n")
    (home / "bin" / "java").chmod(0o755)
    runtime = SparkRuntime(settings.model_copy(update={"java_home": str(home), "jars_dir": Settings().jars_dir}))
    with pytest.raises(Unavailable, match="could not reserve enough space"):
        runtime.session()


@pytest.mark.slow
def test_the_background_start_returns_at_once_and_threads_share_one_session(spark: SparkRuntime) -> None:
    spark.stop()
    began = time.monotonic()
    spark.start_in_background()
    assert time.monotonic() - began < 1
    assert spark.state() == "starting"
    sessions: list[object] = []
    threads = [threading.Thread(target=lambda: sessions.append(spark.session())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert len(sessions) == 8
    assert len({id(session) for session in sessions}) == 1
    assert spark.state() == "ready"
    assert 0 < spark.start_seconds < 240


def test_waiting_for_a_start_has_an_end(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(SparkRuntime, "_attempt", lambda *_: release.wait(30))
    runtime = SparkRuntime(settings.model_copy(update={"spark_start_timeout_s": 0.1}))
    with pytest.raises(Unavailable, match=r"still starting after 0\.1 s") as raised:
        runtime.session()
    assert raised.value.retry_after_s
    release.set()


def test_there_is_one_runtime_per_process(spark: SparkRuntime, settings: Settings) -> None:
    assert spark_runtime(settings) is spark


def test_the_session_is_set_up_for_exact_times_and_one_machine(spark: SparkRuntime) -> None:
    session = spark.session()
    assert session.conf.get("spark.sql.session.timeZone") == "UTC"
    assert session.conf.get("spark.sql.ansi.enabled") == "true"
    assert session.conf.get("spark.databricks.delta.snapshotPartitions") == "1"
    assert session.sparkContext._jvm.java.util.TimeZone.getDefault().getID() == "UTC"


@pytest.mark.slow
def test_plain_and_delta_writes_leave_only_their_files(spark: SparkRuntime, tmp_path: Path) -> None:
    session = spark.session()
    rows = session.range(10).coalesce(1)
    rows.write.parquet(str(tmp_path / "plain"))
    assert [file.suffix for file in (tmp_path / "plain").iterdir()] == [".parquet"]
    rows.write.format("delta").save(str(tmp_path / "table"))
    rows.write.format("delta").mode("append").save(str(tmp_path / "table"))
    assert session.read.format("delta").load(str(tmp_path / "table")).count() == 20
    assert [file for file in (tmp_path / "table").rglob(".*") if file.is_file()] == []


def test_pools_hold_for_a_block_of_one_thread(spark: SparkRuntime) -> None:
    session = spark.session()
    with in_pool(session, "maintenance"):
        assert session.sparkContext.getLocalProperty("spark.scheduler.pool") == "maintenance"
        with in_pool(session, "interactive"):
            assert session.sql("select 1").collect()
        assert session.sparkContext.getLocalProperty("spark.scheduler.pool") == "maintenance"
    assert session.sparkContext.getLocalProperty("spark.scheduler.pool") is None
    assert session.sparkContext._jsc.sc().getPoolForName("interactive").isDefined()


def test_storage_settings_reach_the_live_session(spark: SparkRuntime) -> None:
    session = spark.session()
    spark.configure_storage({"spark.hadoop.fs.crannog.test": "1", "fs.crannog.other": "2"})
    hadoop = session.sparkContext._jsc.hadoopConfiguration()
    assert (hadoop.get("fs.crannog.test"), hadoop.get("fs.crannog.other")) == ("1", "2")
    assert spark.session() is session


@pytest.mark.slow
def test_storage_settings_outlive_a_session_and_stay_off_the_command_line(spark: SparkRuntime) -> None:
    spark.configure_storage({"fs.crannog.secret": "hush"})
    spark.stop()
    spark.start_in_background()
    spark.configure_storage({"fs.crannog.during": "start"})
    hadoop = spark.session().sparkContext._jsc.hadoopConfiguration()
    assert (hadoop.get("fs.crannog.secret"), hadoop.get("fs.crannog.during")) == ("hush", "start")
    start = spark._start
    assert start is not None
    assert start.jvm is not None
    assert b"hush" not in Path(f"/proc/{start.jvm.process.pid}/cmdline").read_bytes()


@pytest.mark.parametrize(
    ("statement", "kind", "words"),
    [
        ("selec 1", CallerError, "Syntax error at or near 'selec'"),
        ("select * from nosuch", NotFound, "`nosuch` cannot be found"),
        ("select nosuch", CallerError, "`nosuch` cannot be resolved"),
        ("select 1/0", CallerError, "Division by zero"),
        ("select cast(concat('x', id) as int) from range(5)", CallerError, 'cannot be cast to "INT"'),
        ("select array(1, 2)[id] from range(5)", CallerError, "out of bounds"),
        ("select raise_error('boom')", CallerError, "boom"),
    ],
)
def test_errors_blame_the_statement_in_one_line(
    spark: SparkRuntime, capfd: pytest.CaptureFixture[str], statement: str, kind: type, words: str
) -> None:
    error = failure(spark, statement)
    assert type(error) is kind
    assert words in str(error)
    assert "\n" not in str(error)
    assert "SQLSTATE" not in str(error)
    assert capfd.readouterr() == ("", "")


def test_a_cancelled_job_is_cancelled(spark: SparkRuntime) -> None:
    context, over = spark.session().sparkContext, threading.Event()

    def cancel_until_over() -> None:
        while not over.wait(0.2):
            context.cancelAllJobs()

    canceller = threading.Thread(target=cancel_until_over)
    canceller.start()
    try:
        assert isinstance(failure(spark, "select sum(hash(id)) from range(1000000000000)"), Cancelled)
    finally:
        over.set()
        canceller.join(10)


def test_each_of_deltas_races_is_a_conflict() -> None:
    from delta import exceptions

    names = [
        name for name in dir(exceptions) if name.endswith("Exception") and ("Concurrent" in name or "Changed" in name)
    ]
    assert len(names) == 8
    for name in names:
        assert isinstance(translated(getattr(exceptions, name)("lost")), Conflict), name


def test_our_own_errors_stay_as_they_are_and_others_become_unavailable() -> None:
    ours = NotFound("x")
    assert translated(ours) is ours
    assert isinstance(translated(ConnectionRefusedError()), Unavailable)
    assert isinstance(translated(RuntimeError("disk on fire\n\tat stack")), Unavailable)
    assert str(translated(RuntimeError("disk on fire\n\tat stack"))) == "Spark failed: disk on fire"


def test_long_and_wordy_messages_are_shortened() -> None:
    assert (
        shortened("org.apache.spark.SparkException: [A_B.C] What went wrong. SQLSTATE: 42000; line 1")
        == "What went wrong."
    )
    assert len(shortened("x" * 10_000)) == 400
    aborted = "Job aborted due to stage failure: Lost task 0.0 in stage 1.0 (TID 1) (localhost executor driver): java.io.IOException: no space\n\tat x"
    assert shortened(aborted) == "no space"
    in_python = (
        'An exception was thrown from the Python worker: Traceback (most recent call last):\n  File "x.py", line 1\n'
    )
    assert shortened(f"{in_python}pyarrow.lib.ArrowInvalid: not a file\n") == "ArrowInvalid: not a file"


@pytest.mark.parametrize(
    ("machine", "set_mb", "heap"), [(1 * GIB, 0, 1024), (16 * GIB, 0, 4096), (256 * GIB, 0, 8192), (16 * GIB, 700, 700)]
)
def test_the_heap_is_a_bounded_share_of_the_memory(machine: int, set_mb: int, heap: int) -> None:
    assert configuration.memory_mb(Settings(spark_memory_mb=set_mb), machine) == heap


def test_a_cluster_gets_the_jars_shipped_and_its_own_parallelism(tmp_path: Path) -> None:
    found = jars.JarSet(tmp_path, (tmp_path / "a.jar",))
    cluster = Settings(spark_master="spark://host:7077")
    conf = configuration.process_conf(cluster, cores=2, machine_bytes=4 * GIB, folder=tmp_path, jars=[found])
    assert conf["spark.jars"] == str(tmp_path / "a.jar")
    assert "spark.driver.host" not in conf
    assert "spark.sql.shuffle.partitions" not in conf


@pytest.mark.slow
def test_a_killed_java_process_is_replaced(spark: SparkRuntime) -> None:
    session = spark.session()
    start = spark._start
    assert start is not None
    assert start.jvm is not None
    os.kill(start.jvm.process.pid, signal.SIGKILL)
    start.jvm.process.wait(10)
    with pytest.raises(Exception) as raised:
        session.sql("select 1").collect()
    assert isinstance(translated(raised.value), Unavailable)
    assert spark.state() == "failed"
    assert spark.session().sql("select 2 as two").collect()[0].two == 2
    assert spark.session() is not session
    assert not start.jvm.folder.exists()


@pytest.mark.slow
def test_a_stopped_context_is_replaced(spark: SparkRuntime) -> None:
    spark.session().stop()
    assert spark.session().sql("select 3 as three").collect()[0].three == 3


@pytest.mark.usefixtures("no_session")
def test_stopping_during_a_start_ends_the_process(settings: Settings) -> None:
    runtime = SparkRuntime(settings)
    runtime.start_in_background()
    start = runtime._start
    assert start is not None
    runtime.stop()
    assert start.done.is_set()
    assert start.jvm is None or not start.jvm.alive
    with pytest.raises(Unavailable, match="stopped while it started"):
        raise start.error or AssertionError("the start was not cancelled")


@pytest.mark.slow
def test_the_java_process_is_quiet_and_dies_with_its_python() -> None:
    program = (
        "import time\nfrom crannog.settings import Settings\nfrom crannog.spark.session import spark_runtime\n"
        "runtime = spark_runtime(Settings(spark_memory_mb=1024, spark_start_timeout_s=240))\n"
        "runtime.session().range(10).count()\njvm = runtime._start.jvm\nprint(jvm.process.pid, jvm.folder, flush=True)\ntime.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as python:
        assert python.stdout is not None
        pid, folder = python.stdout.readline().split()
        assert Path(f"/proc/{pid}").exists()
        python.kill()
        out, err = python.communicate(timeout=30)
    assert (out, err) == ("", "")
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, "the Java process outlives its Python"
        time.sleep(0.1)
    # A killed Python cannot clear up; the next start would, a day later.
    shutil.rmtree(folder)


@pytest.mark.slow
def test_spark_reads_from_s3_what_it_wrote(spark: SparkRuntime) -> None:
    boto3 = pytest.importorskip("boto3")
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        address = f"http://127.0.0.1:{server.get_host_and_port()[1]}"
        login = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
        boto3.client("s3", endpoint_url=address, **login).create_bucket(Bucket="runtime")
        spark.configure_storage(
            {
                "fs.s3a.bucket.runtime.endpoint": address,
                "fs.s3a.bucket.runtime.endpoint.region": "us-east-1",
                "fs.s3a.bucket.runtime.access.key": "key",
                "fs.s3a.bucket.runtime.secret.key": "secret",
                "fs.s3a.bucket.runtime.path.style.access": "true",
                "fs.s3a.bucket.runtime.connection.ssl.enabled": "false",
            }
        )
        session = spark.session()
        session.range(100_000).write.parquet("s3a://runtime/plain")
        assert session.read.parquet("s3a://runtime/plain").count() == 100_000
        session.range(10).write.format("delta").save("s3a://runtime/table")
        assert session.read.format("delta").load("s3a://runtime/table").count() == 10
    finally:
        server.stop()


@pytest.mark.parametrize(
    "said",
    [
        "Job 3 cancelled because SparkContext was shut down",
        'Cannot invoke "org.apache.spark.scheduler.DAGScheduler.cleanupQueryJobs(long)" because the return value of'
        ' "org.apache.spark.SparkContext.dagScheduler()" is null',
    ],
)
def test_work_that_was_cut_off_by_an_end_is_lost_not_failed(said: str) -> None:
    assert isinstance(translated(RuntimeError(said)), SparkLost)
