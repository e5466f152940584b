"""The storage interface: the few file operations that a warehouse needs, and opening the storage at an address.

`put_if_absent` is the only way anything is committed; all concurrency control rests on it. Paths are relative to the warehouse,
with forward slashes. A missing file is `FileNotFoundError`; every other failure is `Unavailable`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import unquote, urlsplit

from crannog.errors import CallerError


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in a listing; `modified` is seconds since the epoch by the storage's clock."""

    path: str
    size: int
    modified: float


class Storage(Protocol):
    """A warehouse folder, or the prefix of a bucket."""

    @property
    def is_local(self) -> bool:
        """True where a listing and a stat cost microseconds and are never stale."""

    def make_folder(self, folder: str) -> None:
        """Create `folder` and its parents durably; does nothing where folders are only prefixes."""

    def put_if_absent(
        self,
        path: str,
        data: bytes,
        *,
        must_exist: str | None = None,
        before_write: Callable[[], None] | None = None,
        private: bool = False,
    ) -> bool:
        """Commit `data` durably as `path` unless that file exists; return True if this call created it.

        The folder must exist (FileNotFoundError): a writer to a dropped table must not recreate its folder.
        `must_exist` names another file of the same table that must exist (FileNotFoundError): a commit must not reach
        a table that was recreated under the same name. On a local disk the check and the commit are one step.
        `before_write` is called before the first byte is written and raises to abandon the put. On a local disk the
        temporary file exists by then: if another process deletes it afterwards, the put fails (FileNotFoundError),
        however late it comes. In a bucket an empty `.<name>.<id>.tmp` announces the put while it lasts: taking the
        name makes the put fail.
        Only the user of this process can read a `private` file; in a bucket, who can read the bucket can read it too.
        Any other exception means that the answer is lost: the file may or may not exist.
        """

    def is_preallocated(self, folder: str) -> bool:
        """Tell whether enough files are preallocated for the next puts into `folder`."""

    def preallocate(self, folder: str) -> None:
        """Preallocate files of `PREALLOCATED_BYTES` for puts into `folder`, where that makes them faster."""

    def close(self) -> None:
        """Remove preallocated files that were not used."""

    def replace(self, path: str, data: bytes) -> None:
        """Write `data` to `path` durably and atomically, replacing any existing file."""

    def read(self, path: str) -> bytes:
        """Return the whole file. Raises FileNotFoundError if it does not exist."""

    def open(self, path: str) -> BinaryIO:
        """Open a file to read parts of it. Raises FileNotFoundError if it does not exist."""

    def exists(self, path: str) -> bool:
        """Tell whether `path` is a file."""

    def names(self, folder: str) -> list[str]:
        """Return the names directly in `folder`, in no order; empty if the folder does not exist."""

    def change_stamp(self, folder: str) -> int | None:
        """Return a number that changes whenever the names directly in `folder` change; None if unknown.

        Comparing two stamps is a cheap way to see that a folder has not changed. None if the storage has no such
        number, or if the folder changed so recently that another change might leave the number the same.
        """

    def walk(self, folder: str) -> Iterator[StoredFile]:
        """Yield every file below `folder`."""

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders directly in `folder`."""

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; a missing file is not an error."""

    def delete_folder(self, folder: str) -> None:
        """Delete everything below `folder`; where the storage can, it disappears for others in one step."""

    def remove_empty_folders(self, folder: str) -> None:
        """Remove `folder` and its subfolders that hold no file; does nothing where folders are only prefixes."""

    def sync(self, paths: Iterable[str]) -> None:
        """Make files that another program wrote, and their folders, durable.

        Repeating a failed sync proves nothing: the system may have dropped what it could not write and report success
        the next time. Write the files again, or call `rewrite_synced`.
        """

    def rewrite_synced(self, path: str, *, before_write: Callable[[], None] | None = None) -> None:
        """Make sure that an existing file is durable: write it again with the same content and sync it.

        Raises FileNotFoundError if it does not exist. `before_write` as in `put_if_absent`. Does nothing where a file
        that can be seen is durable.
        """

    def touch(self, path: str) -> None:
        """Set the modification time of `path` to now. Raises FileNotFoundError if it does not exist."""

    def now(self) -> float:
        """Return the time by the clock that `modified` uses."""

    def uri(self, path: str) -> str:
        """Return the address of `path` for delta-rs and DuckDB."""

    def spark_uri(self, path: str) -> str:
        """Return the address of `path` for Spark."""

    @property
    def options(self) -> Mapping[str, str]:
        """Return delta-rs's storage options."""

    @property
    def spark_settings(self) -> Mapping[str, str]:
        """Return the Spark configuration that lets Spark read `spark_uri`."""


_SCHEMES = "a folder, file:///folder, s3://bucket/folder, gs://bucket/folder, az://container/folder"


def open_storage(location: str, mode: int = 0o700) -> Storage:
    """Return the storage at `location`: a folder (absolute or relative), file:// or a bucket.

    A folder that does not exist gets the permissions `mode` when it is created.
    Lists a bucket once, so that wrong credentials show here (Unavailable) and not at the first write. Raises
    CallerError if the address is invalid.
    """
    if not location.strip() or location != location.strip() or any(ord(letter) < 32 for letter in location):
        raise CallerError(f"{location!r} is not a valid warehouse location; give {_SCHEMES}")
    if "://" not in location and not location.startswith("file:"):
        return _local(location, mode)
    try:
        parts = urlsplit(location)
    except ValueError:
        raise CallerError(f"{location!r} is not a valid address; give {_SCHEMES}") from None
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise CallerError(f"{location!r} is not absolute; write file:///folder, or the folder alone")
        return _local(unquote(parts.path), mode)

    from crannog.storage.object_store import SCHEMES, ObjectStorage  # obstore is slow to load and often not needed

    if parts.scheme not in SCHEMES:
        raise CallerError(f"cannot keep a warehouse at {parts.scheme}://; give {_SCHEMES}")
    storage = ObjectStorage(location)
    storage.check()
    return storage


def reopen_storage(uri: str, options: Mapping[str, str]) -> Storage:
    """Return the storage at the `uri` of an open one's root, with its `options`: for the tasks of a job, without checks."""
    if "://" not in uri:
        return _local(uri)
    from crannog.storage.object_store import ObjectStorage  # obstore is slow to load and often not needed

    return ObjectStorage(uri, options)


def _local(folder: str, mode: int = 0o700) -> Storage:
    from crannog.storage.local import LocalStorage

    path = Path(folder).expanduser()
    if path.exists() and not path.is_dir():
        raise CallerError(f"{folder} is a file; a warehouse needs a folder")
    return LocalStorage(path, mode)
