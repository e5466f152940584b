"""The pages as the server gives them, and signing in to them; `tests/pages` has what a browser makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from crannog.errors import Forbidden, Unauthorized
from crannog.server.auth import Tokens
from crannog.server.routes import pages
from crannog.server.sessions import LASTS_S, Sessions, check_same_origin
from crannog.storage.local import LocalStorage
from reference import typescript
from servers import Server, in_process, made_token, serving

SAME = {"Sec-Fetch-Site": "same-origin"}
DOCUMENT = '<!doctype html><base href="./" /><title>Crannog</title>'


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with small pages instead of the real ones."""
    folder = tmp_path / "built"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text(DOCUMENT)
    (folder / "assets" / "index-1.js").write_text("let plain;")
    (folder / "assets" / "index-1.js.br").write_bytes(b"packed")
    (folder / "secret.txt").write_text("secret")
    monkeypatch.setattr(pages, "_BUILT", folder)
    return folder


@pytest.mark.parametrize(
    ("path", "base"), [("/", "./"), ("/traces", "./"), ("/traces/ab12", "../"), ("/tables/a.b.c/", "../../")]
)
def test_every_page_has_the_document_with_its_way_to_the_root(
    tmp_path: Path, built: Path, path: str, base: str
) -> None:
    with in_process(tmp_path) as (_, ask):
        found = ask("GET", path)
    assert found.status_code == 200
    assert f'<base href="{base}"' in found.text
    policy = found.headers["content-security-policy"]
    assert policy.startswith("default-src 'self';")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["referrer-policy"] == "no-referrer"
    assert found.headers["cache-control"] == "no-cache"


def test_files_are_packed_and_kept_by_browsers(tmp_path: Path, built: Path) -> None:
    with in_process(tmp_path) as (_, ask):
        plain = ask("GET", "/assets/index-1.js", headers={"Accept-Encoding": "identity"})
        packed = ask("GET", "/assets/index-1.js", headers={"Accept-Encoding": "zstd, br"})
        missing = [ask("GET", path) for path in ("/assets/none.js", "/assets/..%2Fsecret.txt", "/assets/index-1.js.br")]
        unknown = ask("GET", "/elsewhere")
    assert plain.text == "let plain;"
    assert plain.headers["content-type"].startswith("text/javascript")
    assert "immutable" in plain.headers["cache-control"]
    assert packed.headers["content-encoding"] == "br"
    assert [each.status_code for each in missing] == [404, 404, 404]
    assert unknown.json()["error"]["code"] == "not_found"


def test_without_pages_the_server_says_how_to_build_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_BUILT", tmp_path / "nowhere")
    with in_process(tmp_path) as (_, ask):
        found = ask("GET", "/")
    assert found.status_code == 503
    assert "make pages" in found.text


# -- signing in ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    """A server with tokens, and a token that may read one catalog."""
    folder = tmp_path_factory.mktemp("guarded")
    token = made_token(folder / "warehouse", "reader", "read:shop")
    with serving(folder / "warehouse") as server:
        yield server, token


def test_signing_in_and_out(guarded: tuple[Server, str]) -> None:
    server, token = guarded
    with server.client() as client:
        nobody = client.get("/api/v1/session").json()
        assert (nobody["signed_in"], nobody["needs_token"], nobody["scopes"]) == (False, True, [])
        assert client.get("/api/v1/tables").status_code == 401
        answer = client.post("/api/v1/session", json={"token": token}, headers=SAME)
        assert answer.json()["name"] == "reader"
        assert token not in answer.text
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert f"Max-Age={LASTS_S}" in cookie
        # Without a path a browser sends it below /api/v1 only, under whatever prefix.
        assert "Path" not in cookie
        assert "Secure" not in cookie
        assert token not in cookie
        assert client.get("/api/v1/session").json()["scopes"] == ["read:shop"]
        assert client.get("/api/v1/tables").status_code == 200
        refused = client.put("/api/v1/tables/shop.a.b", json={"schema": {}}, headers=SAME)
        assert refused.status_code == 403
        assert client.delete("/api/v1/session", headers=SAME).json()["signed_in"] is False
        assert client.get("/api/v1/tables").status_code == 401


def test_the_cookie_is_for_https_alone_behind_it(guarded: tuple[Server, str]) -> None:
    server, token = guarded
    with server.client() as client:
        headers = {**SAME, "Origin": "https://lake.example"}
        answer = client.post("/api/v1/session", json={"token": token}, headers=headers)
    assert "Secure" in answer.headers["set-cookie"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "https://evil.example"},
        {},
    ],
)
def test_other_sites_cannot_use_a_session(guarded: tuple[Server, str], headers: dict[str, str]) -> None:
    server, token = guarded
    with server.client() as client:
        client.post("/api/v1/session", json={"token": token}, headers=SAME).raise_for_status()
        assert client.delete("/api/v1/sql/none", headers=headers).status_code == 403
        assert client.post("/api/v1/session", json={"token": token}, headers=headers).status_code == 403
        own = {"Origin": server.url}
        assert client.delete("/api/v1/sql/none", headers=own).status_code == 404


@pytest.mark.parametrize("token", ["", "crannog_reader_" + "0" * 64, "x" * 10_000])
def test_a_wrong_token_does_not_sign_in(guarded: tuple[Server, str], token: str) -> None:
    server, _ = guarded
    with server.client() as client:
        answer = client.post("/api/v1/session", json={"token": token}, headers=SAME)
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


def test_pages_are_open_and_data_is_not(guarded: tuple[Server, str]) -> None:
    server, _ = guarded
    with server.client() as client:
        assert client.get("/").status_code in (200, 503)
        assert client.get("/traces/x").status_code in (200, 503)
        assert client.post("/traces").status_code == 401
        assert client.get("/api/v1/tables", headers={"Cookie": "crannog_session=guess"}).status_code == 401
        assert client.get("/metrics").status_code == 401


def test_a_session_ends_with_its_token_and_with_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = Tokens(LocalStorage(tmp_path))
    token = tokens.create("joe", ["read"])
    tokens.refresh()
    sessions = Sessions(tokens)
    session_id, caller = sessions.start(token)
    assert sessions.caller(session_id) == caller
    tokens.revoke("joe")
    monkeypatch.setattr(tokens, "_read_at", float("-inf"))
    tokens.refresh()
    with pytest.raises(Unauthorized, match="revoked"):
        sessions.caller(session_id)
    again = tokens.create("joe", ["read"])
    monkeypatch.setattr(tokens, "_read_at", float("-inf"))
    tokens.refresh()
    # A new token of the same name does not bring the old session back.
    with pytest.raises(Unauthorized):
        sessions.caller(session_id)
    newer, _ = sessions.start(again)
    monkeypatch.setattr("crannog.server.sessions.time.monotonic", lambda: 1e12)
    with pytest.raises(Unauthorized, match="ended"):
        sessions.caller(newer)


def test_reads_by_address_are_allowed() -> None:
    check_same_origin("GET", {b"sec-fetch-site": b"none"})
    check_same_origin("GET", {})
    with pytest.raises(Forbidden):
        check_same_origin("GET", {b"sec-fetch-site": b"cross-site"})


def test_the_types_of_the_routes_are_up_to_date() -> None:
    assert typescript.TARGET.read_text(encoding="utf-8") == typescript.text(), "run: make docs"
