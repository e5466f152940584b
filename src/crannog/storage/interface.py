"""Where files live: the few acts the lake needs, and one of them carries all concurrency.

`put_if_absent` is the only way anything becomes committed. Paths are relative to the warehouse,
with forward slashes. A missing file is `FileNotFoundError`; every other failure is `Unavailable`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Protocol


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as a listing shows it; `modified` is seconds since the epoch by the storage's clock."""

    path: str
    size: int
    modified: float


class Storage(Protocol):
    """A warehouse folder, or the prefix of a bucket."""

    @property
    def is_local(self) -> bool:
        """True where a listing and a stat cost microseconds and are never stale."""

    def make_folder(self, folder: str) -> None:
        """Make `folder` and its parents, durably; nothing to do where folders are only prefixes."""

    def put_if_absent(
        self, path: str, data: bytes, *, alive: str | None = None, confirm: Callable[[], None] | None = None
    ) -> bool:
        """Commit `data` under `path`, durably, unless something stands there: True if this call did.

        The folder must exist (FileNotFoundError): a writer to a dropped table must not bring its folder back.
        `alive` names a file that must stand in the same table (FileNotFoundError): a commit must not reach a table
        that was made again under the name; on a local disk the two are one step.
        `confirm` is called before the first byte is written and raises to give up. On a local disk the temporary file
        exists by then: if somebody deletes it afterwards, the put fails (FileNotFoundError), however late it comes.
        In a bucket an empty `.<name>.<id>.tmp` announces the put while it lasts: taking the name makes the put fail.
        When it raises anything else, the answer is lost: the file may or may not be there.
        """

    def is_prepared(self, folder: str) -> bool:
        """Tell whether `prepare` would do nothing for what is put into `folder` next."""

    def prepare(self, folder: str) -> None:
        """Make ready for more files of `SPARE_BYTES` in `folder`, where that makes putting them quicker."""

    def close(self) -> None:
        """Remove what was made ready and is not needed."""

    def replace(self, path: str, data: bytes) -> None:
        """Put `data` under `path`, durably and atomically, whatever stood there."""

    def read(self, path: str) -> bytes:
        """Return the whole file; FileNotFoundError if there is none."""

    def open(self, path: str) -> BinaryIO:
        """Open a file to read parts of it; FileNotFoundError if there is none."""

    def exists(self, path: str) -> bool:
        """Tell whether `path` is a file."""

    def names(self, folder: str) -> list[str]:
        """Return the names directly in `folder`, in no order; empty if there is no such folder."""

    def quiet_stamp(self, folder: str) -> int | None:
        """Return a number that any later change of the names directly in `folder` changes; None if there is none just now.

        One cheap look tells then that a folder is as it was. None where the storage cannot, or the folder changed so
        shortly ago that another change might leave the number as it is.
        """

    def walk(self, folder: str) -> Iterator[StoredFile]:
        """Yield every file below `folder`."""

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders directly in `folder`."""

    def delete(self, paths: Iterable[str]) -> None:
        """Remove files; a missing one is no error."""

    def delete_folder(self, folder: str) -> None:
        """Remove everything below `folder`, so that it disappears for others at once where the storage can."""

    def prune(self, folder: str) -> None:
        """Remove `folder` and the folders in it that hold no file; nothing to do where folders are only prefixes."""

    def sync(self, paths: Iterable[str]) -> None:
        """Make files that another program wrote, and their folders, durable.

        After a sync that failed this proves nothing: the system may have given up on what it could not write and
        reports success the next time. Write the files anew then, or `renew` them.
        """

    def renew(self, path: str, *, confirm: Callable[[], None] | None = None) -> None:
        """Make a file durable of which nobody knows whether it is: written anew with the same content and synced.

        FileNotFoundError if there is none. `confirm` as in `put_if_absent`. Nothing to do where a file that can be
        seen is durable.
        """

    def touch(self, path: str) -> None:
        """Set the modification time of `path` to now; FileNotFoundError if there is none."""

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
        """Return the Spark configuration that makes `spark_uri` readable."""
