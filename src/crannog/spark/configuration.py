"""Spark's configuration, derived from the settings and the machine, and the secret of its processes.

Everything in UTC, few partitions on one machine, nothing printed to the terminal. Spark's processes authenticate each
other with a secret: with `local[…]`, YARN and Kubernetes masters Spark generates a new one at each start and passes it
to its executors; a standalone cluster has one that its master, its workers and every driver know.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from crannog.errors import Unavailable
from crannog.settings import GIB, MIB, Settings
from crannog.spark.jars import JarSet
from crannog.spark.jvm import CONF

POOLS = ("interactive", "maintenance")
# XML may be part of a query. Java's parsers would open what a DOCTYPE, a schema or a stylesheet in it names: any file
# that this process can read, any address that it can reach. An empty list of protocols allows none.
_NO_EXTERNAL_XML = tuple(f"-Djavax.xml.accessExternal{kind}=" for kind in ("DTD", "Schema", "Stylesheet"))
# Hadoop opens these addresses as files wherever Spark takes a path; no storage of ours is behind one.
_REFUSED = "crannog.refuses.this.scheme"
_REFUSED_SCHEMES = ("http", "https", "ftp", "sftp", "webhdfs", "swebhdfs", "har")


def is_local(settings: Settings) -> bool:
    """Return whether Spark's tasks run inside the one Java process."""
    return not settings.spark_remote and settings.spark_master.startswith("local")


def memory_mb(settings: Settings, machine_bytes: int) -> int:
    """Return the heap in MiB: as set, else a quarter of the machine's memory, 1 to 8 GiB."""
    if settings.spark_memory_mb:
        return settings.spark_memory_mb
    return min(max(machine_bytes // 4, GIB), 8 * GIB) // MIB


def session_conf(settings: Settings, *, cores: int) -> dict[str, str]:
    """Return the configuration of every session, also a remote one: what affects results and files."""
    conf = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        # ${env:…} in a statement would show the environment and the settings, secrets among them.
        "spark.sql.variable.substitute": "false",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
        "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # It fails on a correlated subquery next to a union, and a table with staged changes is a union.
        "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.PushProjectionThroughUnion",
    }
    if is_local(settings):
        # With Spark's default of 200 and Delta's of 50 a group-by took 3.5 s instead of 0.55, a point read 8.1 instead of 0.9.
        conf |= {
            "spark.sql.shuffle.partitions": str(max(2, cores)),
            "spark.databricks.delta.snapshotPartitions": "1",
            "spark.databricks.delta.optimize.maxThreads": str(max(2, cores)),
        }
    return conf


def process_conf(
    settings: Settings, *, cores: int, machine_bytes: int, folder: Path, jars: Sequence[JarSet]
) -> dict[str, str]:
    """Return the configuration of a Java process that we start; `folder` is its scratch space."""
    java_options = (
        f'-Dlog4j2.configurationFile="{CONF / "log4j2.properties"}"',
        f'-Dcrannog.spark.log="{folder / "log"}"',
        f'-Djava.io.tmpdir="{folder}"',
        # In another zone Delta rebuilds a table's whole state on every commit.
        "-Duser.timezone=UTC",
        # After an OutOfMemoryError Spark works only in part; a process that exits is noticed and replaced.
        "-XX:+ExitOnOutOfMemoryError",
        *_NO_EXTERNAL_XML,
    )
    conf = {
        "spark.app.name": "crannog",
        "spark.master": settings.spark_master,
        "spark.driver.memory": f"{memory_mb(settings, machine_bytes)}m",
        "spark.driver.extraJavaOptions": " ".join(java_options),
        "spark.executor.extraJavaOptions": " ".join(_NO_EXTERNAL_XML),
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": (CONF / "fairscheduler.xml").as_uri(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        # Keeps Hadoop's hidden .crc files out of Delta's log folders.
        "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
        # With Spark's UI off, nobody reads its history of past jobs.
        "spark.ui.retainedJobs": "20",
        "spark.ui.retainedStages": "20",
        "spark.ui.retainedTasks": "1000",
        "spark.sql.ui.retainedExecutions": "5",
        # Every user of the machine can reach the driver's ports; using them requires the secret.
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        **{f"spark.hadoop.fs.{scheme}.impl": _REFUSED for scheme in _REFUSED_SCHEMES},
        **session_conf(settings, cores=cores),
    }
    if is_local(settings):
        conf |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            # Both ends are ours; the older authentication protocols are only for clusters without these settings.
            "spark.network.crypto.authEngineVersion": "2",
            "spark.network.crypto.saslFallback": "false",
            # On the class path the jars are used in place; spark.jars would copy them at every start.
            "spark.driver.extraClassPath": os.pathsep.join(str(each.folder / "*") for each in jars),
        }
    else:
        # Replace an executor whose cancelled tasks do not end.
        conf |= {"spark.task.reaper.enabled": "true", "spark.task.reaper.killTimeout": "60s"}
        conf["spark.jars"] = ",".join(str(file) for each in jars for file in each.files)
    return conf


def storage_conf(storage: Mapping[str, str]) -> dict[str, str]:
    """Return a storage's Hadoop settings under Spark's names."""
    return {key if key.startswith("spark.") else f"spark.hadoop.{key}": value for key, value in storage.items()}


def machine_bytes() -> int:
    """Return the memory this process may use: the machine's, or its container's limit if that is lower."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            return min(physical, int(Path(limit).read_text(encoding="ascii")))
        except (OSError, ValueError):
            continue
    return physical


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


SETTING = "spark.authenticate.secret"
_SECRET_BYTES = 32
_MIN_LENGTH = 16
_MADE_BY_SPARK = ("local[", "yarn", "k8s://")


def secret_conf(settings: Settings) -> dict[str, str]:
    """Return the setting with the secret, if this master needs one from us.

    It must reach Spark over the gateway, never on a command line. Raises Unavailable if a cluster's secret cannot be read.
    """
    master = settings.spark_master
    if settings.spark_secret_file:
        return {SETTING: _read(settings.spark_secret_file)}
    if master == "local" or master.startswith(_MADE_BY_SPARK):
        return {}
    if master.startswith("local-cluster["):
        return {SETTING: secrets.token_hex(_SECRET_BYTES)}
    raise Unavailable(
        f"the Spark master {master} needs the secret that its cluster was started with; put it into a file that only"
        " you can read and set CRANNOG_SPARK_SECRET_FILE to it (docs: Clusters and buckets)"
    )


def _read(file: str) -> str:
    try:
        with open(file, encoding="utf-8") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            secret = opened.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise Unavailable(f"cannot read Spark's secret from {file} (CRANNOG_SPARK_SECRET_FILE): {reason}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise Unavailable(
            f"other users may read Spark's secret in {file} (mode {stat.S_IMODE(mode):o}); run chmod 600 on it"
        )
    if len(secret) < _MIN_LENGTH:
        raise Unavailable(
            f"Spark's secret in {file} has {len(secret)} characters; use at least {_MIN_LENGTH}, better 64 random ones"
        )
    return secret
