"""Storage in a local folder: every commit fsyncs the file and its folder.

Put-if-absent is a hard link: the temporary file is complete and synced before its name appears, so a
reader or a power cut never sees half a file, and the link fails if the name is taken.

Syncing a new file costs more than syncing its bytes: the file system also writes its entry and allocates its blocks.
So small puts use preallocated files, created and synced in advance: content of the same length takes one write and one
sync. Until it is linked to a name, such a file is a temporary file like any other: an erase removes it, and so does a
vacuum if its process was killed.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO

from crannog.errors import CallerError, Unavailable
from crannog.storage import failpoints
from crannog.storage.interface import StoredFile

log = logging.getLogger("crannog.storage")
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
_SETTLED_AFTER_NS = 100_000_000
PREALLOCATED_BYTES = 4_096
PREALLOCATED_FOLDER = "spare"
_MAX_READY = 32
_ZEROS = bytes(PREALLOCATED_BYTES)


class LocalStorage:
    """A folder on a file system with hard links."""

    is_local = True

    def __init__(self, root: Path, mode: int = 0o700) -> None:
        """`mode` is for the folder if it is created here; one that exists stays as it is."""
        self.root = root.absolute()
        self._mode = mode
        if any(letter in str(self.root) for letter in "*?[]{}\\\n"):
            raise CallerError(
                f"cannot keep a warehouse in {self.root}: Spark would read *, ?, [, ], {{, }} and \\ as patterns; rename the folder"
            )
        self._prefix = f"{self.root}/"
        self._preallocated: dict[str, PreallocatedFiles] = {}

    def _full_path(self, path: str) -> str:
        return self._prefix + path

    def make_folder(self, folder: str) -> None:
        target = Path(self._full_path(folder))
        with _os_errors_translated("create the folder", folder):
            missing = [target, *target.parents]
            missing = missing[: next((i for i, p in enumerate(missing) if p.is_dir()), len(missing))]
            try:
                if self.root in missing:
                    self._make_root()
                target.mkdir(parents=True, exist_ok=True)
                for made in missing:
                    sync_path(str(made.parent))
            except FileNotFoundError as error:
                # In /proc and the like; callers would take it to mean that a table was dropped.
                raise Unavailable(
                    f"cannot create the folder {target}: {error.strerror}; choose another location"
                ) from error
            except OSError:
                # The next call would find the folders and assume that they are durable.
                for made in missing:
                    with suppress(OSError):
                        os.rmdir(made)
                raise

    def _make_root(self) -> None:
        self.root.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):  # another process was first
            self.root.mkdir(self._mode)
            self.root.chmod(self._mode)  # a setting is meant as it is, whatever the umask

    def put_if_absent(
        self,
        path: str,
        data: bytes,
        *,
        must_exist: str | None = None,
        before_write: Callable[[], None] | None = None,
        private: bool = False,
    ) -> bool:
        if must_exist is not None:
            return self._put_while_exists(path, data, must_exist)
        target = self._prefix + path
        with _os_errors_translated("write", path):
            preallocated = self._preallocated.get(path.rpartition("/")[0])
            ready = preallocated.write_synced(data, before_write) if preallocated is not None else None
            temporary = ready or _temporary_path(target)
            try:
                if ready is None:
                    _write_synced(temporary, data, before_write=before_write, mode=0o600 if private else 0o644)
                if failpoints.hook is not None:
                    failpoints.reached("stage.written")
                try:
                    os.link(temporary, target)
                except FileExistsError:
                    return False
                if failpoints.hook is not None:
                    failpoints.reached("stage.linked")
                sync_path(target.rpartition("/")[0])
                return True
            finally:
                with suppress(OSError):
                    os.unlink(temporary)

    def is_preallocated(self, folder: str) -> bool:
        preallocated = self._preallocated.get(folder)
        # Only measured on Linux; a sync works differently elsewhere.
        return sys.platform != "linux" or (preallocated is not None and not preallocated.is_low)

    def preallocate(self, folder: str) -> None:
        if folder not in self._preallocated:
            self._preallocated[folder] = PreallocatedFiles(
                self._full_path(f"{folder.rpartition('/')[0]}/{PREALLOCATED_FOLDER}")
            )
        self._preallocated[folder].refill()

    def close(self) -> None:
        while self._preallocated:
            self._preallocated.popitem()[1].close()

    def _put_while_exists(self, path: str, data: bytes, must_exist: str) -> bool:
        # Through the open folder: if a drop renames it, the link goes with it and not into the folder that replaces it.
        common_folder = os.path.commonpath([path, must_exist])
        relative, required = path[len(common_folder) + 1 :], must_exist[len(common_folder) + 1 :]
        temporary = _temporary_path(relative)
        with _os_errors_translated("write", path):
            folder = os.open(self._full_path(common_folder), os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.stat(required, dir_fd=folder)
                _write_synced(temporary, data, folder)
                try:
                    os.link(temporary, relative, src_dir_fd=folder, dst_dir_fd=folder)
                except FileExistsError:
                    return False
                finally:
                    os.unlink(temporary, dir_fd=folder)
                sync_path(os.path.dirname(relative), folder)
                return True
            finally:
                os.close(folder)

    def replace(self, path: str, data: bytes) -> None:
        self._replace(path, data)

    def rewrite_synced(self, path: str, *, before_write: Callable[[], None] | None = None) -> None:
        self._replace(path, self.read(path), before_write=before_write, must_exist=True)

    def _replace(
        self, path: str, data: bytes, *, before_write: Callable[[], None] | None = None, must_exist: bool = False
    ) -> None:
        target = self._full_path(path)
        temporary = _temporary_path(target)
        with _os_errors_translated("write", path):
            try:
                _write_synced(temporary, data, before_write=before_write)
                if must_exist:
                    os.stat(target)  # a file deleted meanwhile must not come back
                os.replace(temporary, target)
                sync_path(target.rpartition("/")[0])
            except BaseException:
                _remove(temporary)
                raise

    def read(self, path: str) -> bytes:
        with _os_errors_translated("read", path), open(self._full_path(path), "rb") as file:
            return file.read()

    def open(self, path: str) -> BinaryIO:
        with _os_errors_translated("open", path):
            return open(self._full_path(path), "rb")

    def exists(self, path: str) -> bool:
        try:
            os.stat(self._prefix + path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise _unavailable("check", path, error) from error
        return True

    def names(self, folder: str) -> list[str]:
        with _os_errors_translated("list", folder):
            try:
                return [name for name in os.listdir(self._full_path(folder)) if not name.startswith(".")]
            except (FileNotFoundError, NotADirectoryError):
                return []

    def change_stamp(self, folder: str) -> int | None:
        try:
            changed_ns = os.stat(self._prefix + folder).st_mtime_ns
        except OSError:
            return None
        return changed_ns if shows_later_changes(changed_ns) else None

    def walk(self, folder: str) -> Iterator[StoredFile]:
        with _os_errors_translated("list", folder):
            for place, _, names in os.walk(self._full_path(folder), onerror=_raise_unless_missing):
                for name in names:
                    full = f"{place}/{name}"
                    with suppress(FileNotFoundError):  # deleted since the listing
                        stat = os.stat(full)
                        if S_ISREG(stat.st_mode):  # not the pipes between processes
                            yield StoredFile(full[len(self._prefix) :], stat.st_size, stat.st_mtime)

    def folders(self, folder: str) -> list[str]:
        with _os_errors_translated("list", folder):
            try:
                with os.scandir(self._full_path(folder)) as entries:
                    return [entry.name for entry in entries if entry.is_dir()]
            except (FileNotFoundError, NotADirectoryError):
                return []

    def delete(self, paths: Iterable[str]) -> None:
        folders = set()
        for path in paths:
            with _os_errors_translated("delete", path), suppress(FileNotFoundError):
                os.unlink(self._full_path(path))
                folders.add(path.rpartition("/")[0])
        for folder in folders:
            with suppress(FileNotFoundError), _os_errors_translated("sync", folder):
                sync_path(self._full_path(folder))

    def delete_folder(self, folder: str) -> None:
        # Renamed first: for everyone else it is gone in one step, however long the removal takes.
        self.make_folder(TRASH)
        away = self._full_path(f"{TRASH}/{uuid.uuid4().hex}")
        with _os_errors_translated("delete", folder):
            try:
                os.rename(self._full_path(folder), away)
            except FileNotFoundError:
                return
            sync_path(os.path.dirname(self._full_path(folder)))
            # Also remove what an earlier, killed removal left. The trash folder stays: others may be using it.
            for name in os.listdir(self._full_path(TRASH)):
                shutil.rmtree(self._full_path(f"{TRASH}/{name}"), ignore_errors=True)

    def remove_empty_folders(self, folder: str) -> None:
        with _os_errors_translated("remove empty folders of", folder):
            for place, _, _ in os.walk(self._full_path(folder), topdown=False):
                with suppress(OSError):  # not empty, or gone already
                    os.rmdir(place)

    def sync(self, paths: Iterable[str]) -> None:
        folders = set()
        for path in paths:
            with _os_errors_translated("sync", path):
                sync_path(self._full_path(path))
            while path := path.rpartition("/")[0]:
                folders.add(path)
        for folder in folders:
            with _os_errors_translated("sync", folder):
                sync_path(self._full_path(folder))

    def touch(self, path: str) -> None:
        with _os_errors_translated("touch", path):
            os.utime(self._full_path(path))

    def now(self) -> float:
        return time.time()

    def uri(self, path: str) -> str:
        return self._full_path(path)

    def spark_uri(self, path: str) -> str:
        # Spark takes the text literally: percent-encoding it would name another file.
        return f"file://{self._full_path(path)}"

    @property
    def options(self) -> Mapping[str, str]:
        return {}

    @property
    def spark_settings(self) -> Mapping[str, str]:
        return {}

    def __repr__(self) -> str:
        return str(self.root)


def shows_later_changes(changed_ns: int) -> bool:
    """Tell whether any later change of a folder last changed at `changed_ns` would change its time.

    The file system's clock ticks in milliseconds: two changes within one tick leave the same time.
    """
    return time.time_ns() - changed_ns >= _SETTLED_AFTER_NS


def _raise_unless_missing(error: OSError) -> None:
    # os.walk would skip a folder that it cannot list, as if it were empty.
    if not isinstance(error, FileNotFoundError):
        raise error


def _write_synced(
    path: str,
    data: bytes,
    folder: int | None = None,
    *,
    before_write: Callable[[], None] | None = None,
    mode: int = 0o644,
) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode, dir_fd=folder)
    try:
        if before_write is not None:
            before_write()
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _temporary_path(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.{uuid.uuid4().hex}.tmp"


def sync_path(path: str, folder: int | None = None) -> None:
    """Make a file, or the names in a folder, durable; `path` may be relative to the open `folder`."""
    descriptor = os.open(path, os.O_RDONLY, dir_fd=folder)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _os_errors_translated(act: str, path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _unavailable(act, path, error) from error


_FULL_S = 60.0
_full: list[float] = []
"""When the device was first found full, and last."""


def full_since() -> float | None:
    """Return since when this process finds the device of a warehouse full; None if it did not in the last minute."""
    return _full[0] if _full and time.time() - _full[1] < _FULL_S else None


def _note_full() -> None:
    now = time.time()
    since = full_since()
    if since is None:
        log.error("no space is left on the device; free some space, writes fail until then")
    _full[:] = [now if since is None else since, now]


def _unavailable(act: str, path: str, error: OSError) -> Unavailable:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        _note_full()
    advice = _ADVICE.get(error.errno or 0, "check the disk and try again")
    return Unavailable(f"cannot {act} {path}: {os.strerror(error.errno or 0)}; {advice}")


class PreallocatedFiles:
    """The preallocated files of one process for one stage folder, stored in `folder`. Thread-safe."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._process = os.getpid()
        self._ready: deque[str] = deque()

    @property
    def is_low(self) -> bool:
        return len(self._ready) <= _MAX_READY // 2

    def refill(self) -> None:
        """Create more files, if there is room; on a full disk the next put reports the error."""
        with suppress(OSError), ExitStack() as made:
            # Without parents: the table may have been dropped.
            with suppress(FileExistsError):
                Path(self._folder).mkdir()
            new = [
                made.enter_context(_created(f"{self._folder}/{uuid.uuid4().hex}.tmp"))
                for _ in range(_MAX_READY - len(self._ready))
            ]
            for _, descriptor in new:
                os.fsync(descriptor)
            self._ready.extend(path for path, _ in new)

    def write_synced(self, data: bytes, before_write: Callable[[], None] | None = None) -> str | None:
        """Return the path of a synced file with this content; None if none is ready or the length differs.

        `before_write` is called before the content is written; if it raises, nothing is written.
        """
        # A forked process has a copy of the list, but the files belong to its parent.
        if len(data) != PREALLOCATED_BYTES or self._process != os.getpid():
            return None
        try:
            path = self._ready.popleft()
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        except IndexError:
            return None
        except FileNotFoundError:
            self._ready.clear()  # an erase deleted them
            return None
        try:
            if before_write is not None:
                before_write()
            if os.pwrite(descriptor, data, 0) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fdatasync(descriptor)
        except BaseException:
            _remove(path)
            raise
        finally:
            os.close(descriptor)
        return path

    def close(self) -> None:
        """Remove the unused files."""
        if self._process == os.getpid():
            while self._ready:
                _remove(self._ready.popleft())


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)


@contextmanager
def _created(path: str) -> Iterator[tuple[str, int]]:
    """Create a file of zeros; it is removed if the block raises."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, _ZEROS)
        # Start writing all of them to the disk before waiting for the first.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        yield path, descriptor
    except BaseException:
        _remove(path)
        raise
    finally:
        os.close(descriptor)
