"""Opens the storage at a warehouse's address."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from crannog.errors import CallerError
from crannog.storage.interface import Storage

_SCHEMES = "a folder, file:///folder, s3://bucket/folder, gs://bucket/folder, az://container/folder"


def open_storage(location: str) -> Storage:
    """Return the storage at `location`: a folder (absolute or relative), file:// or a bucket.

    Lists a bucket once, so that wrong credentials show here (Unavailable) and not at the first write. Raises
    CallerError if the address is invalid.
    """
    if not location.strip() or location != location.strip() or any(ord(letter) < 32 for letter in location):
        raise CallerError(f"{location!r} is not a valid warehouse location; give {_SCHEMES}")
    if "://" not in location and not location.startswith("file:"):
        return _local(location)
    try:
        parts = urlsplit(location)
    except ValueError:
        raise CallerError(f"{location!r} is not a valid address; give {_SCHEMES}") from None
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise CallerError(f"{location!r} is not absolute; write file:///folder, or the folder alone")
        return _local(unquote(parts.path))

    from crannog.storage.object_store import SCHEMES, ObjectStorage  # obstore is slow to load and often not needed

    if parts.scheme not in SCHEMES:
        raise CallerError(f"cannot keep a warehouse at {parts.scheme}://; give {_SCHEMES}")
    storage = ObjectStorage(location)
    storage.check()
    return storage


def _local(folder: str) -> Storage:
    from crannog.storage.local import LocalStorage

    path = Path(folder).expanduser()
    if path.exists() and not path.is_dir():
        raise CallerError(f"{folder} is a file; a warehouse needs a folder")
    return LocalStorage(path)
