"""A warehouse that has had a token stays closed, whatever happens to the files of tokens; and who can read the files."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import crannog
from crannog.cli import doctor_checks
from crannog.cli.main import app
from crannog.engine.maintenance.delete_audit import key_hash
from crannog.errors import CallerError, Refused
from crannog.server import auth
from crannog.server.auth import FOLDER, MARKER, Tokens
from crannog.settings import Settings
from crannog.storage.local import LocalStorage
from servers import in_process
from test_server_routes import error


@pytest.fixture(autouse=True)
def read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "REREAD_S", 0.0)


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def damage(warehouse: Path) -> None:
    for file in (warehouse / FOLDER).iterdir():
        file.write_bytes(file.read_bytes()[:20])


def empty(warehouse: Path) -> None:
    for file in (warehouse / FOLDER).iterdir():
        file.unlink()


def truncate(warehouse: Path) -> None:
    for file in (warehouse / FOLDER).iterdir():
        file.write_bytes(b"")


def rename(warehouse: Path) -> None:
    for file in (warehouse / FOLDER).iterdir():
        file.rename(file.with_suffix(".bak"))


def replace_folder(warehouse: Path) -> None:
    shutil.rmtree(warehouse / FOLDER)
    (warehouse / FOLDER).write_bytes(b"")


def remove_folder(warehouse: Path) -> None:
    shutil.rmtree(warehouse / FOLDER)


def remove_own_folder(warehouse: Path) -> None:
    shutil.rmtree(warehouse / "_crannog")


@pytest.mark.parametrize(
    "act",
    [damage, empty, truncate, rename, replace_folder, remove_folder, remove_own_folder],
    ids=lambda act: act.__name__,
)
def test_no_damage_opens_a_server_that_had_tokens(tmp_path: Path, act: Callable[[Path], None]) -> None:
    warehouse = tmp_path / "warehouse"
    with in_process(tmp_path) as (_, ask):
        assert ask("GET", "/api/v1/tables").status_code == 200
        Tokens(LocalStorage(warehouse)).create("root", ["admin"])
        error(ask("GET", "/api/v1/tables"), 401, "unauthorized")
        act(warehouse)
        said = error(ask("GET", "/api/v1/tables"), 401, "unauthorized")
        assert "crannog token create" in said
        assert "crannog token open" in said
        assert ask("GET", "/api/v1/session").json()["needs_token"] is True
        # Even what `open` does counts from the next start only.
        (warehouse / MARKER).unlink()
        error(ask("GET", "/api/v1/tables"), 401, "unauthorized")
        Tokens(LocalStorage(warehouse))._mark()
    with in_process(tmp_path) as (_, ask):
        error(ask("GET", "/api/v1/tables"), 401, "unauthorized")


def test_only_a_command_on_the_machine_opens_it_again(tmp_path: Path) -> None:
    warehouse, run = tmp_path / "warehouse", CliRunner().invoke
    tokens = Tokens(LocalStorage(warehouse))
    for name in ("one", "two"):
        tokens.create(name, ["admin"])
    damage(warehouse)
    tokens.revoke("two")
    place = ["--warehouse", str(warehouse), "token"]
    assert "one" in run(app, [*place, "list"]).output
    assert "damaged" in run(app, [*place, "list", "--json"]).output
    assert isinstance(run(app, [*place, "open"]).exception, Refused), "it asks first"
    assert isinstance(run(app, ["--server", "http://127.0.0.1:1", "token", "open", "--yes"]).exception, CallerError)
    assert tokens.read().is_required
    opened = run(app, [*place, "open", "--yes", "--json"])
    assert json.loads(opened.output) == {"opened": True, "revoked": 1}
    with in_process(tmp_path) as (_, ask):
        assert ask("GET", "/api/v1/tables").status_code == 200


def test_a_server_marks_a_warehouse_whose_tokens_are_older_than_the_marker(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    Tokens(storage).create("root", ["admin"])
    (tmp_path / MARKER).unlink()
    Tokens(storage).refresh()
    assert (tmp_path / MARKER).is_file()


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"\xff\xfe", b"[]", b"[" * 100_000,
        b'{"name": "odd", "scopes": ["all"], "created_at": "2026-01-01", "expires_at": null, "secret_sha256": ""}',
        b'{"name": "odd", "scopes": ["read"], "created_at": "2026-01-01", "expires_at": null, "secret_sha256": 5}',
        b'{"name": "odd", "scopes": ["read"], "created_at": "2026-01-01", "expires_at": null, "secret_sha256": "\xc3\xa4"}',
        b'{"name": "odd", "scopes": ["read"], "created_at": "2026-01-01", "expires_at": "2030-01-01", "secret_sha256": "%b"}'
        % (b"0" * 64),
        b'{"name": "joe", "scopes": ["admin"], "created_at": "2026-01-01", "expires_at": null, "secret_sha256": "%b"}'
        % (b"0" * 64),
    ],
)  # fmt: skip
def test_a_damaged_file_is_reported_and_locks_nobody_else_out(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = Tokens(LocalStorage(tmp_path))
    joe = tokens.create("joe", ["read"])
    (tmp_path / FOLDER / "odd.json").write_bytes(content)
    tokens.refresh()
    tokens.refresh()
    assert tokens.caller(joe).name == "joe"
    assert str(tokens.caller(joe).scopes[0]) == "read"
    assert list(tokens.read().damaged) == ["odd"]
    assert [record.getMessage().partition(" ")[0] for record in caplog.records] == [f"{FOLDER}/odd.json"]
    [check, *_] = doctor_checks.check_access(Settings(warehouse=str(tmp_path)), tmp_path)
    assert (check.name, check.ok) == ("tokens", False)
    assert f"{FOLDER}/odd.json" in check.found


# -- permissions ---------------------------------------------------------------------------------------------------


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_secrets_are_for_their_user_alone(tmp_path: Path, open_umask: None) -> None:
    warehouse = tmp_path / "warehouse"
    with crannog.connect(str(warehouse)) as lake:
        lake.create_table("a.b.c", pa.schema([("n", pa.int64())]))
    assert mode(warehouse) == 0o700
    storage = LocalStorage(warehouse)
    Tokens(storage).create("joe", ["read"])
    assert mode(warehouse / FOLDER / "joe.json") == 0o600
    key_hash(storage, "table", {"id": 1})
    assert mode(warehouse / "_crannog/secret") == 0o600
    # Whatever creates it first.
    Tokens(LocalStorage(tmp_path / "other")).create("joe", ["read"])
    assert mode(tmp_path / "other") == 0o700


def test_a_setting_opens_the_folder_to_a_group(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with crannog.connect(str(tmp_path / "shared"), warehouse_mode="0750"):
            assert mode(tmp_path / "shared") == 0o750
    finally:
        os.umask(before)
    (tmp_path / "old").mkdir(0o755)
    (tmp_path / "old").chmod(0o755)
    with crannog.connect(str(tmp_path / "old")):
        assert mode(tmp_path / "old") == 0o755, "an existing folder stays as it is"
    with pytest.raises(CallerError, match="warehouse_mode"):
        crannog.connect(str(tmp_path / "never"), warehouse_mode="rwx")
    Tokens(LocalStorage(tmp_path / "old")).create("joe", ["read"])
    found = {
        check.name: check
        for check in doctor_checks.check_access(Settings(warehouse=str(tmp_path / "old")), tmp_path / "old")
    }
    assert found["tokens"].ok
    assert not found["permissions"].ok
    assert "chmod 700" in found["permissions"].advice
    wide = Settings(warehouse=str(tmp_path / "old"), warehouse_mode="0755")
    assert all(check.ok for check in doctor_checks.check_access(wide, tmp_path / "old"))
