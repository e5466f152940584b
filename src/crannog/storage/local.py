"""The warehouse as a local folder: everything committed is fsynced, file and folder.

Put-if-absent is a hard link: the temporary file is complete and synced before its name appears, so a
reader or a power cut never sees half a file, and the link fails if the name is taken.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from crannog.errors import CallerError, Unavailable
from crannog.storage import failpoints
from crannog.storage.interface import StoredFile
from crannog.storage.preallocated_files import SPARE_FOLDER, SpareFiles

_ADVICE = {
    errno.ENOSPC: "free some space and try again",
    errno.EDQUOT: "raise the quota and try again",
    errno.EACCES: "check the permissions of the folder",
    errno.EPERM: "check the permissions of the folder, and that the file system has hard links",
    errno.EROFS: "the file system is mounted read-only",
    errno.EIO: "the disk failed; check it before going on",
    errno.EMFILE: "too many open files; raise the limit (ulimit -n)",
}

TRASH = "_crannog/trash"
_CLOCK_TICK_NS = 100_000_000


class LocalStorage:
    """A folder on a file system with hard links."""

    is_local = True

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        if any(letter in str(self.root) for letter in "*?[]{}\\\n"):
            raise CallerError(
                f"cannot keep a warehouse in {self.root}: Spark would read *, ?, [, ], {{, }} and \\ as patterns"
            )
        self._prefix = f"{self.root}/"
        self._spares: dict[str, SpareFiles] = {}

    def _at(self, path: str) -> str:
        return self._prefix + path

    def make_folder(self, folder: str) -> None:
        target = Path(self._at(folder))
        with _translated("make the folder", folder):
            missing = [target, *target.parents]
            missing = missing[: next((i for i, p in enumerate(missing) if p.is_dir()), len(missing))]
            try:
                target.mkdir(parents=True, exist_ok=True)
                for made in missing:
                    _sync_path(str(made.parent))
            except (
                FileNotFoundError
            ) as error:  # /proc and the like; to callers it would mean that something was dropped
                raise Unavailable(f"cannot make the folder {target}: {error.strerror}; give another place") from error
            except OSError:
                # The next call would find them there and take them for durable.
                for made in missing:
                    with suppress(OSError):
                        os.rmdir(made)
                raise

    def put_if_absent(
        self, path: str, data: bytes, *, alive: str | None = None, confirm: Callable[[], None] | None = None
    ) -> bool:
        if alive is not None:
            return self._put_beside(path, data, alive)
        target = self._at(path)
        folder, _, name = target.rpartition("/")
        with _translated("write", path):
            spares = self._spares.get(path.rpartition("/")[0])
            spare = spares.written(data, confirm) if spares is not None else None
            temporary = spare or f"{folder}/.{name}.{uuid.uuid4().hex}.tmp"
            try:
                if spare is None:
                    _write_synced(temporary, data, confirm=confirm)
                failpoints.reached("stage.written")
                try:
                    os.link(temporary, target)
                except FileExistsError:
                    return False
                failpoints.reached("stage.linked")
                _sync_path(folder)
                return True
            finally:
                with suppress(OSError):
                    os.unlink(temporary)

    def is_prepared(self, folder: str) -> bool:
        spares = self._spares.get(folder)
        # Elsewhere a sync is another thing, and nobody has measured it.
        return sys.platform != "linux" or (spares is not None and not spares.runs_low)

    def prepare(self, folder: str) -> None:
        if folder not in self._spares:
            self._spares[folder] = SpareFiles(self._at(f"{folder.rpartition('/')[0]}/{SPARE_FOLDER}"))
        self._spares[folder].fill()

    def close(self) -> None:
        while self._spares:
            self._spares.popitem()[1].close()

    def _put_beside(self, path: str, data: bytes, alive: str) -> bool:
        # Through the open folder: if it is renamed away, by a drop, the link goes with it and not to its successor.
        anchor = os.path.commonpath([path, alive])
        inside, guard = path[len(anchor) + 1 :], alive[len(anchor) + 1 :]
        temporary = f"{os.path.dirname(inside)}/.{os.path.basename(inside)}.{uuid.uuid4().hex}.tmp"
        with _translated("write", path):
            folder = os.open(self._at(anchor), os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.stat(guard, dir_fd=folder)
                _write_synced(temporary, data, folder)
                try:
                    os.link(temporary, inside, src_dir_fd=folder, dst_dir_fd=folder)
                except FileExistsError:
                    return False
                finally:
                    os.unlink(temporary, dir_fd=folder)
                _sync_path(os.path.dirname(inside), folder)
                return True
            finally:
                os.close(folder)

    def replace(self, path: str, data: bytes) -> None:
        target = self._at(path)
        folder, _, name = target.rpartition("/")
        temporary = f"{folder}/.{name}.{uuid.uuid4().hex}.tmp"
        with _translated("write", path):
            try:
                _write_synced(temporary, data)
                os.replace(temporary, target)
                _sync_path(folder)
            except OSError:
                with suppress(OSError):
                    os.unlink(temporary)
                raise

    def renew(self, path: str, *, confirm: Callable[[], None] | None = None) -> None:
        data = self.read(path)
        target = self._at(path)
        folder, _, name = target.rpartition("/")
        temporary = f"{folder}/.{name}.{uuid.uuid4().hex}.tmp"
        with _translated("write", path):
            try:
                _write_synced(temporary, data, confirm=confirm)
                os.stat(target)  # deleted meanwhile: it must not come back
                os.replace(temporary, target)
                _sync_path(folder)
            finally:
                with suppress(OSError):
                    os.unlink(temporary)

    def read(self, path: str) -> bytes:
        with _translated("read", path), open(self._at(path), "rb") as file:
            return file.read()

    def open(self, path: str) -> BinaryIO:
        with _translated("open", path):
            return open(self._at(path), "rb")

    def exists(self, path: str) -> bool:
        try:
            os.stat(self._prefix + path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise _unavailable("look at", path, error) from error
        return True

    def names(self, folder: str) -> list[str]:
        with _translated("list", folder):
            try:
                return [name for name in os.listdir(self._at(folder)) if not name.startswith(".")]
            except (FileNotFoundError, NotADirectoryError):
                return []

    def quiet_stamp(self, folder: str) -> int | None:
        try:
            changed_ns = os.stat(self._prefix + folder).st_mtime_ns
        except OSError:
            return None
        return changed_ns if is_settled(changed_ns) else None

    def walk(self, folder: str) -> Iterator[StoredFile]:
        with _translated("list", folder):
            for place, _, names in os.walk(self._at(folder), onerror=_raise_unless_missing):
                for name in names:
                    full = f"{place}/{name}"
                    with suppress(FileNotFoundError):  # deleted since the listing
                        stat = os.stat(full)
                        yield StoredFile(full[len(self._prefix) :], stat.st_size, stat.st_mtime)

    def folders(self, folder: str) -> list[str]:
        with _translated("list", folder):
            try:
                with os.scandir(self._at(folder)) as entries:
                    return [entry.name for entry in entries if entry.is_dir()]
            except (FileNotFoundError, NotADirectoryError):
                return []

    def delete(self, paths: Iterable[str]) -> None:
        folders = set()
        for path in paths:
            with _translated("delete", path), suppress(FileNotFoundError):
                os.unlink(self._at(path))
                folders.add(path.rpartition("/")[0])
        for folder in folders:
            with suppress(FileNotFoundError), _translated("sync", folder):
                _sync_path(self._at(folder))

    def delete_folder(self, folder: str) -> None:
        # Renamed first: for everybody else it is gone in one step, however long the removal takes.
        self.make_folder(TRASH)
        away = self._at(f"{TRASH}/{uuid.uuid4().hex}")
        with _translated("delete", folder):
            try:
                os.rename(self._at(folder), away)
            except FileNotFoundError:
                return
            _sync_path(os.path.dirname(self._at(folder)))
            # Whatever an earlier removal left when it was killed goes too; the folder itself others may be using.
            for name in os.listdir(self._at(TRASH)):
                shutil.rmtree(self._at(f"{TRASH}/{name}"), ignore_errors=True)

    def prune(self, folder: str) -> None:
        with _translated("prune", folder):
            for place, _, _ in os.walk(self._at(folder), topdown=False):
                with suppress(OSError):  # not empty, or gone already
                    os.rmdir(place)

    def sync(self, paths: Iterable[str]) -> None:
        folders = set()
        for path in paths:
            with _translated("sync", path):
                _sync_path(self._at(path))
            while path := path.rpartition("/")[0]:
                folders.add(path)
        for folder in folders:
            with _translated("sync", folder):
                _sync_path(self._at(folder))

    def touch(self, path: str) -> None:
        with _translated("touch", path):
            os.utime(self._at(path))

    def now(self) -> float:
        return time.time()

    def uri(self, path: str) -> str:
        return self._at(path)

    def spark_uri(self, path: str) -> str:
        # Spark takes the text as it stands: percent-encoding it would name another file.
        return f"file://{self._at(path)}"

    @property
    def options(self) -> Mapping[str, str]:
        return {}

    @property
    def spark_settings(self) -> Mapping[str, str]:
        return {}

    def __repr__(self) -> str:
        return str(self.root)


def is_settled(changed_ns: int) -> bool:
    """Tell whether a folder that changed then would show any later change by its time.

    The file system's clock ticks in milliseconds: two changes within one tick leave the same time.
    """
    return time.time_ns() - changed_ns >= _CLOCK_TICK_NS


def _raise_unless_missing(error: OSError) -> None:
    # os.walk would pass over a folder it cannot list, as if nothing were in it.
    if not isinstance(error, FileNotFoundError):
        raise error


def _write_synced(
    path: str, data: bytes, folder: int | None = None, *, confirm: Callable[[], None] | None = None
) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=folder)
    try:
        if confirm is not None:
            confirm()
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_path(path: str, folder: int | None = None) -> None:
    descriptor = os.open(path, os.O_RDONLY, dir_fd=folder)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _translated(act: str, path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _unavailable(act, path, error) from error


def _unavailable(act: str, path: str, error: OSError) -> Unavailable:
    advice = _ADVICE.get(error.errno or 0, "check the disk and try again")
    return Unavailable(f"cannot {act} {path}: {os.strerror(error.errno or 0)}; {advice}")
