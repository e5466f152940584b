"""The secret with which Spark's processes authenticate each other: generated, or read from a file.

With `local[…]`, YARN and Kubernetes masters Spark generates a new one at each start and passes it to its executors.
A standalone cluster has one that its master, its workers and every driver know.
"""

from __future__ import annotations

import os
import secrets
import stat

from crannog.errors import Unavailable
from crannog.settings import Settings

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
