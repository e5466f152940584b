"""Storage in a bucket, through obstore: S3 and compatible stores, Google Cloud, Azure, and memory for tests.

Put-if-absent is a conditional put (If-None-Match on S3 and Azure, generation 0 on Google Cloud). Folders are
only prefixes: they cannot be created, and a folder disappears file by file. Credentials come from the providers' usual
environment variables; neither they nor the store's raw answers, which can quote a session token, appear in a message.
"""

from __future__ import annotations

import errno
import io
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from crannog.errors import CallerError, CrannogError, Unavailable
from crannog.storage import failpoints
from crannog.storage.interface import StoredFile

if TYPE_CHECKING:
    from obstore import UpdateVersion
    from obstore.store import AzureConfig, ClientConfig, RetryConfig, S3Config
    from typing_extensions import Buffer

SCHEMES: Final = ("s3", "s3a", "gs", "az", "abfs", "abfss", "memory")
CLOCK_PROBE: Final = ".crannog-clock"
CHECKED: Final = ".crannog-checked"
USE_ANOTHER_STORE: Final = (
    "use a store with conditional puts, such as S3, Google Cloud Storage, Azure or a current MinIO, or a local folder"
)

_CLOCK_CHECK_S: Final = 3600.0
_CONCURRENT_FETCHES: Final = 16
_FETCH_CHUNK_BYTES: Final = 8 * 1024**2
_LIST_CHUNK: Final = 1000
_READ_AHEAD_BYTES: Final = 256 * 1024
_DEFAULTS: Final = {"timeout": "120s", "connect_timeout": "5s", "max_retries": "4", "retry_timeout": "30s"}
_KEYS_TO_CHECK: Final = {
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
    "memory": "nothing",
}
_NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist")

# One per name and process, so that a second ObjectStorage("memory://x") finds what the first one wrote.
_memory_stores: Final[dict[str, MemoryStore]] = {}


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of a bucket's address."""

    scheme: str
    bucket: str
    prefix: str
    account: str = ""

    @classmethod
    def parse(cls, uri: str) -> Address:
        """Return the parts of `uri`. Raises CallerError, without repeating a password, if it is invalid."""
        parts = urlsplit(uri)
        scheme = {"s3a": "s3", "abfs": "az", "abfss": "az"}.get(parts.scheme, parts.scheme)
        shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        if parts.scheme not in SCHEMES:
            raise CallerError(f"cannot keep a warehouse in {shown}: use one of the schemes {', '.join(SCHEMES)}")
        bucket, at, host = parts.netloc.partition("@")
        if at and (scheme != "az" or ":" in bucket):
            raise CallerError(f"the address {shown} contains a user or password; set {_KEYS_TO_CHECK[scheme]} instead")
        if not bucket and scheme != "memory":
            raise CallerError(f"the address {shown} names no bucket; write {parts.scheme}://bucket/folder")
        prefix = parts.path.strip("/")
        # Delta-rs decodes percent signs in addresses and DuckDB does not, so the warehouse's own name needs none.
        plain = all(
            re.fullmatch(r"(?!\.{1,2}$)[A-Za-z0-9._=+@~-]+", name)
            for name in f"{bucket or 'x'}/{prefix or 'x'}".split("/")
        )
        if not plain or parts.query or parts.fragment:
            raise CallerError(
                f"the address {shown} has unsupported characters; use letters, digits and . _ = + @ ~ - between slashes"
            )
        return cls(scheme, bucket, prefix, host.partition(".")[0])


class ObjectStorage:
    """A prefix of a bucket. `options` use delta-rs's names (AWS_REGION, timeout…) and override the environment."""

    is_local = False

    def __init__(self, uri: str, options: Mapping[str, str] | None = None) -> None:
        self.address = Address.parse(uri)
        self._settings = {**_DEFAULTS, **{_option_name(key): value for key, value in (options or {}).items()}}
        self._prefix = f"{self.address.prefix}/" if self.address.prefix else ""
        self._s3 = _s3_settings(self._settings) if self.address.scheme == "s3" else {}
        self._store = self._connect()
        self._skew_s = 0.0
        self._skew_until = 0.0
        self._skew_lock = threading.Lock()

    def check(self) -> None:
        """Check once that the bucket can be listed and that conditional puts work there.

        The second check writes a marker, so later opens of the warehouse cost one listing. Raises Unavailable, with
        advice, if the bucket is missing or denies access, and CallerError if it ignores conditions.
        """
        with self._store_errors_translated("list", ""):
            listed = next(iter(obstore.list(self._store, self._key(CHECKED), chunk_size=1)), None)
        # Memory, which tests use, is obstore's own and honours conditions.
        if listed or self.address.scheme == "memory":
            return
        try:
            refuses = self.refuses_second_put()
        except Unavailable as error:
            # A reader without write permission commits nothing.
            if isinstance(error.__context__, (PermissionDeniedError, UnauthenticatedError)):
                return
            raise
        if not refuses:
            raise CallerError(
                f"cannot keep a warehouse in {self}: the store ignores the condition of a put (If-None-Match), so two "
                "writers would overwrite each other's commits",
                hint=USE_ANOTHER_STORE,
            )
        self.replace(f"{CHECKED}/conditional-puts", b"")

    def refuses_second_put(self) -> bool:
        """Return whether the store refuses to put an object that exists: some S3-compatible stores do not."""
        path = f".crannog-probe-{uuid.uuid4().hex}"
        try:
            # The name is new: a first put that is refused met its own object, put again after a lost answer.
            return not self.put_if_absent(path, b"1") or not self.put_if_absent(path, b"2")
        finally:
            with suppress(CrannogError):
                self.delete([path])

    def make_folder(self, folder: str) -> None:
        self._key(folder)

    def put_if_absent(
        self,
        path: str,
        data: bytes,
        *,
        must_exist: str | None = None,
        before_write: Callable[[], None] | None = None,
        private: bool = False,
    ) -> bool:
        if before_write is not None:
            folder, _, name = path.rpartition("/")
            announcement = f"{folder}/.{name}.{uuid.uuid4().hex}.tmp"
            with self._store_errors_translated("write", announcement):
                obstore.put(self._store, self._key(announcement), b"")
            try:
                before_write()
                return self.put_if_absent(path, data, must_exist=must_exist)
            finally:
                with suppress(CrannogError):
                    self.delete([announcement])
        # Not atomic here: if the table is dropped and recreated in between, the put reaches the new table.
        if must_exist is not None and not self.exists(must_exist):
            raise FileNotFoundError(errno.ENOENT, "there is no such object", self.uri(must_exist))
        # False means "look again", not "another writer's": obstore repeats a put after a broken connection or a 5xx, and
        # then finds its own file; S3 also answers 409 while another put is in progress. The caller lists (rule 2).
        key = self._key(path)
        failpoints.reached("stage.written")
        with self._store_errors_translated("write", path):
            try:
                obstore.put(self._store, key, data, mode="create")
            except AlreadyExistsError:
                return False
        failpoints.reached("stage.linked")
        return True

    def replace(self, path: str, data: bytes) -> None:
        with self._store_errors_translated("write", path):
            obstore.put(self._store, self._key(path), data)

    def read(self, path: str) -> bytes:
        with self._store_errors_translated("read", path):
            return bytes(obstore.get(self._store, self._key(path)).bytes())

    def open(self, path: str) -> BinaryIO:
        with self._store_errors_translated("open", path):
            size = obstore.head(self._store, self._key(path))["size"]
        return io.BufferedReader(_ObjectFile(self, path, size), _READ_AHEAD_BYTES)

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Return `length` bytes from `start` on; the range must lie inside the file."""
        with self._store_errors_translated("read", path):
            return bytes(obstore.get_range(self._store, self._key(path), start=start, length=length))

    def exists(self, path: str) -> bool:
        with self._store_errors_translated("check", path):
            try:
                obstore.head(self._store, self._key(path))
            except FileNotFoundError:
                return False
            return True

    def names(self, folder: str) -> list[str]:
        files, folders = self._listing(folder)
        return [name for name in dict.fromkeys(files + folders) if not name.startswith(".")]

    def is_preallocated(self, folder: str) -> bool:
        return True

    def preallocate(self, folder: str) -> None:
        return

    def close(self) -> None:
        return

    def change_stamp(self, folder: str) -> int | None:
        return None

    def walk(self, folder: str) -> Iterator[StoredFile]:
        key = self._key(folder, root=True)
        stream = obstore.list(self._store, key or None, chunk_size=_LIST_CHUNK)
        while True:
            with self._store_errors_translated("list", folder):
                chunk = next(stream, None)
            if chunk is None:
                return
            for meta in chunk:
                # Hadoop marks a folder with an empty object "folder/"; obstore shows it without the slash.
                if meta["path"] != key:
                    path = meta["path"].removeprefix(self._prefix)
                    yield StoredFile(path, meta["size"], meta["last_modified"].timestamp())

    def folders(self, folder: str) -> list[str]:
        return self._listing(folder)[1]

    def delete(self, paths: Iterable[str]) -> None:
        keys = [self._key(path) for path in paths]
        if not keys:
            return
        with self._store_errors_translated("delete", keys[0].removeprefix(self._prefix)):
            try:
                obstore.delete(self._store, keys)
            except FileNotFoundError as error:
                if any(sign in str(error) for sign in _NO_BUCKET):
                    raise
                # Google Cloud and Azure refuse to delete a missing object, and the batch stops there.
                for key in keys:
                    with suppress(FileNotFoundError):
                        obstore.delete(self._store, key)

    def delete_folder(self, folder: str) -> None:
        batch: list[str] = []
        for file in self.walk(folder):
            batch.append(file.path)
            if len(batch) == _LIST_CHUNK:
                self.delete(batch)
                batch.clear()
        self.delete(batch)

    def remove_empty_folders(self, folder: str) -> None:
        """Do nothing: a prefix without objects does not exist."""

    def sync(self, paths: Iterable[str]) -> None:
        """Do nothing: a put that the store has acknowledged is durable."""

    def rewrite_synced(self, path: str, *, before_write: Callable[[], None] | None = None) -> None:
        if not self.exists(path):
            raise FileNotFoundError(errno.ENOENT, "there is no such object", self.uri(path))

    def touch(self, path: str) -> None:
        key = self._key(path)
        with self._store_errors_translated("touch", path):
            found = obstore.get(self._store, key)
            data = bytes(found.bytes())
            # obstore accepts no None inside a version.
            known = {name: value for name in ("e_tag", "version") if (value := found.meta.get(name)) is not None}
            try:
                # Conditional, so that a heartbeat neither revives a lease just deleted nor overwrites its successor.
                obstore.put(self._store, key, data, mode=cast("UpdateVersion", known) if known else "overwrite")
            except PreconditionError:
                # Changed since, so it is as new as a touch would make it; or deleted, and then this raises.
                obstore.head(self._store, key)
            except NotSupportedError:
                obstore.put(self._store, key, data)

    def now(self) -> float:
        if time.monotonic() >= self._skew_until and self.address.scheme != "memory":
            with self._skew_lock:
                if time.monotonic() >= self._skew_until:
                    self._skew_s = self._measure_skew()
                    self._skew_until = time.monotonic() + _CLOCK_CHECK_S
        return time.time() + self._skew_s

    def uri(self, path: str) -> str:
        return f"{self.address.scheme}://{self.address.bucket}/{self._key(path, root=True)}"

    def spark_uri(self, path: str) -> str:
        key, bucket = self._key(path, root=True), self.address.bucket
        if self.address.scheme == "az":
            return f"abfss://{bucket}@{self._azure_account()}.dfs.core.windows.net/{key}"
        return f"{'s3a' if self.address.scheme == 's3' else self.address.scheme}://{bucket}/{key}"

    @property
    def options(self) -> Mapping[str, str]:
        if self.address.scheme == "memory":
            return {}
        plain = {key: value for key, value in self._settings.items() if value}
        if self.address.scheme == "az" and self._azure_account():
            plain["AZURE_STORAGE_ACCOUNT_NAME"] = self._azure_account()
        if self.address.scheme == "s3":
            plain |= {**self._s3, "AWS_CONDITIONAL_PUT": "etag"}
            if self._s3.get("AWS_ENDPOINT_URL", "").startswith("http://"):
                plain["AWS_ALLOW_HTTP"] = "true"
        return plain

    @property
    def spark_settings(self) -> Mapping[str, str]:
        if self.address.scheme == "s3":
            return _spark_s3(self._s3)
        if self.address.scheme == "az":
            key = self._settings.get("AZURE_STORAGE_ACCOUNT_KEY") or os.environ.get("AZURE_STORAGE_ACCOUNT_KEY")
            host = f"{self._azure_account()}.dfs.core.windows.net"
            return {f"spark.hadoop.fs.azure.account.key.{host}": key} if key else {}
        if self.address.scheme == "gs":
            return {"spark.hadoop.fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem"}
        return {}

    def fetch(self, paths: Iterable[str], into: Path) -> list[Path]:
        """Copy files concurrently to the same paths below `into` and return those paths; existing copies are reused.

        Only for files that never change. An erase must delete the copies too. Raises FileNotFoundError with the
        first missing file; others may have been copied.
        """
        wanted = list(paths)
        targets = {path: into / self._key(path).removeprefix(self._prefix) for path in wanted}
        missing = [path for path, target in targets.items() if not target.exists()]
        with ThreadPoolExecutor(_CONCURRENT_FETCHES, thread_name_prefix="fetch") as pool:
            try:
                for _ in pool.map(lambda path: self._fetch_one(path, targets[path]), missing):
                    pass
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return [targets[path] for path in wanted]

    def __repr__(self) -> str:
        return self.uri("").rstrip("/")

    def _fetch_one(self, path: str, target: Path) -> None:
        temporary = target.parent / f".{target.name}.{uuid.uuid4().hex}.tmp"
        with self._store_errors_translated("read", path):
            found = obstore.get(self._store, self._key(path))
            chunks = iter(found.stream(min_chunk_size=_FETCH_CHUNK_BYTES))
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(temporary, "xb") as file:
                while chunk := self._next_chunk(chunks, path):
                    file.write(chunk)
                if file.tell() != found.meta["size"]:
                    raise Unavailable(f"cannot read {self.uri(path)}: the answer was cut short; try again")
                # Synced before it gets its name: a power cut must not leave an empty file that counts as fetched.
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise Unavailable(f"cannot copy {self.uri(path)} to {target}: {reason}; check that folder") from error
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    def _next_chunk(self, chunks: Iterator[bytes], path: str) -> bytes:
        with self._store_errors_translated("read", path):
            return next(chunks, b"")

    def _listing(self, folder: str) -> tuple[list[str], list[str]]:
        key = self._key(folder, root=True)
        with self._store_errors_translated("list", folder):
            found = obstore.list_with_delimiter(self._store, key or None)
        files = [meta["path"].rpartition("/")[2] for meta in found["objects"] if meta["path"] != key]
        return files, [path.rpartition("/")[2] for path in found["common_prefixes"]]

    def _measure_skew(self) -> float:
        """Return how far the store's clock is ahead of ours; 0 if the round trip hides the difference."""
        before = time.time()
        try:
            self.replace(CLOCK_PROBE, b"")
            after = time.time()
            with self._store_errors_translated("check", CLOCK_PROBE):
                modified = obstore.head(self._store, self._key(CLOCK_PROBE))["last_modified"].timestamp()
        except (Unavailable, FileNotFoundError):
            return self._skew_s  # a reader without write permission uses its own clock
        # Stores truncate the time to whole seconds.
        least, most = modified - after, modified + 1 - before
        return 0.0 if least <= 0 <= most else (least + most) / 2

    def _key(self, path: str, *, root: bool = False) -> str:
        names = path.strip("/").split("/")
        if names == [""] and root:
            return self.address.prefix
        if path.startswith("/") or any(name in ("", ".", "..") for name in names):
            raise CallerError(f"{path!r} is not a path inside the warehouse")
        return self._prefix + "/".join(names)

    def _azure_account(self) -> str:
        name = "AZURE_STORAGE_ACCOUNT_NAME"
        return self.address.account or self._settings.get(name) or os.environ.get(name, "")

    def _connect(self) -> S3Store | GCSStore | AzureStore | MemoryStore:
        address, settings = self.address, self._settings
        if not re.fullmatch(r"\d+s", settings["retry_timeout"]) or not settings["max_retries"].isdigit():
            raise CallerError("retry_timeout must look like 30s, and max_retries like 4")
        retries: RetryConfig = {
            "max_retries": int(settings["max_retries"]),
            "retry_timeout": timedelta(seconds=int(settings["retry_timeout"][:-1])),
        }
        client: ClientConfig = {"timeout": settings["timeout"], "connect_timeout": settings["connect_timeout"]}
        if address.scheme == "memory":
            return _memory_stores.setdefault(address.bucket, MemoryStore())
        with self._store_errors_translated("open", ""):
            if address.scheme == "gs":
                return GCSStore(address.bucket, client_options=client, retry_config=retries)
            if address.scheme == "az":
                if not self._azure_account():
                    raise CallerError(f"cannot open {self}: set AZURE_STORAGE_ACCOUNT_NAME to the account's name")
                azure: AzureConfig = {"account_name": self._azure_account()}
                if key := settings.get("AZURE_STORAGE_ACCOUNT_KEY"):
                    azure["account_key"] = key
                return AzureStore(address.bucket, config=azure, client_options=client, retry_config=retries)
            s3: S3Config = {"region": self._s3["AWS_REGION"], "conditional_put": "etag"}
            if "AWS_ACCESS_KEY_ID" in self._s3:
                s3["access_key_id"] = self._s3["AWS_ACCESS_KEY_ID"]
                s3["secret_access_key"] = self._s3["AWS_SECRET_ACCESS_KEY"]
            if token := self._s3.get("AWS_SESSION_TOKEN"):
                s3["session_token"] = token
            if endpoint := self._s3.get("AWS_ENDPOINT_URL"):
                s3["endpoint"] = endpoint
                client["allow_http"] = endpoint.startswith("http://")
            return S3Store(address.bucket, config=s3, client_options=client, retry_config=retries)

    @contextmanager
    def _store_errors_translated(self, act: str, path: str) -> Iterator[None]:
        """Translate obstore's errors into ours, without the store's raw answer in the exception chain."""
        try:
            yield
        except FileNotFoundError as error:
            if not any(sign in str(error) for sign in _NO_BUCKET):
                raise FileNotFoundError(errno.ENOENT, "there is no such object", self.uri(path)) from None
            raise self._failure(act, path, str(error)) from None
        except (BaseError, ValueError) as error:
            raise self._failure(act, path, str(error)) from None

    def _failure(self, act: str, path: str, answer: str) -> Unavailable:
        finding, hint = self._diagnosis(answer)
        return Unavailable(f"cannot {act} {self.uri(path)}: {finding}", hint=hint)

    def _diagnosis(self, answer: str) -> tuple[str, str]:
        """Return what went wrong and what to do; only the status and the code of the store's answer are repeated."""
        bucket, keys = self.address.bucket, _KEYS_TO_CHECK[self.address.scheme]
        where = f" at {self._s3['AWS_ENDPOINT_URL']}" if self._s3.get("AWS_ENDPOINT_URL") else ""
        status = re.search(r"status code: (\d{3})", answer)
        code = re.search(r"<Code>(\w+)</Code>", answer)
        said = " ".join(filter(None, [status and status[1], code and code[1]])) or "no answer"
        if any(sign in answer for sign in _NO_BUCKET):
            return f"bucket {bucket} does not exist{where}", "create it or correct the warehouse address"
        if "169.254.169.254" in answer or "metadata" in answer.lower():
            return f"no credentials for bucket {bucket}", f"set {keys}"
        if "RequestTimeTooSkewed" in answer:
            return said, "this machine's clock is wrong, set it"
        if (status and status[1] in ("401", "403")) or "lacked" in answer:
            hint = f"check {keys}, and that they may list, get, put and delete there"
            return f"bucket {bucket}{where} refused access ({said})", hint
        if "configured region" in answer:
            return f"bucket {bucket} is in another region", "check AWS_REGION"
        if "kind: Timeout" in answer:
            return f"bucket {bucket}{where} did not answer in time", "try again"
        if "kind: Connect" in answer:
            return f"no connection to bucket {bucket}{where}", "check the network and the endpoint"
        if (status and status[1] == "501") or "not supported" in answer:
            finding = f"bucket {bucket}{where} does not support this operation ({said})"
            return finding, "Crannog needs a store with conditional puts"
        return f"bucket {bucket}{where} failed ({said})", "try again"


class _ObjectFile(io.RawIOBase):
    """An object read in parts, for readers of Parquet footers and single columns."""

    def __init__(self, storage: ObjectStorage, path: str, size: int) -> None:
        self._storage, self._path, self._size, self._at = storage, path, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence])
        return self._at

    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer).cast("B")
        length = min(len(view), self._size - self._at)
        if length <= 0:
            return 0
        view[:length] = self._storage.read_range(self._path, self._at, length)
        self._at += length
        return length


def _option_name(key: str) -> str:
    """Normalize the case of an option's name: timeout, AWS_REGION."""
    lowered = key.lower()
    return lowered if lowered in _DEFAULTS else key.upper()


def _s3_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Return the effective AWS_* settings: those among the options, else the environment's."""

    def first(*names: str) -> str:
        return next((value for name in names if (value := options.get(name) or os.environ.get(name))), "")

    found = {
        "AWS_ACCESS_KEY_ID": first("AWS_ACCESS_KEY_ID"),
        "AWS_SECRET_ACCESS_KEY": first("AWS_SECRET_ACCESS_KEY"),
        "AWS_SESSION_TOKEN": first("AWS_SESSION_TOKEN"),
        "AWS_REGION": first("AWS_REGION", "AWS_DEFAULT_REGION") or "us-east-1",
        "AWS_ENDPOINT_URL": first("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    }
    if bool(found["AWS_ACCESS_KEY_ID"]) != bool(found["AWS_SECRET_ACCESS_KEY"]):
        raise CallerError("set both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or neither")
    endpoint = found["AWS_ENDPOINT_URL"]
    # obstore panics on a malformed endpoint, with an exception that `except Exception` does not catch.
    if endpoint and not re.fullmatch(r"https?://[A-Za-z0-9.\[\]:-]+(/[\w./-]*)?", endpoint):
        raise CallerError("AWS_ENDPOINT_URL must look like https://host:port, without user and password")
    return {name: value for name, value in found.items() if value}


def _spark_s3(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the s3a connector; its jar (hadoop-aws) is not part of PySpark."""
    s3a = {"endpoint.region": settings["AWS_REGION"]}
    if endpoint := settings.get("AWS_ENDPOINT_URL"):
        s3a["endpoint"] = endpoint
        s3a["path.style.access"] = "true"
        s3a["connection.ssl.enabled"] = "false" if endpoint.startswith("http://") else "true"
    if key := settings.get("AWS_ACCESS_KEY_ID"):
        token = settings.get("AWS_SESSION_TOKEN")
        provider = "TemporaryAWSCredentialsProvider" if token else "SimpleAWSCredentialsProvider"
        s3a["aws.credentials.provider"] = f"org.apache.hadoop.fs.s3a.{provider}"
        s3a["access.key"] = key
        s3a["secret.key"] = settings["AWS_SECRET_ACCESS_KEY"]
        if token:
            s3a["session.token"] = token
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()}
