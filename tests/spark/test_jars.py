"""Jars are resolved once, appear whole or not at all, and are used afterwards without a network."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from crannog.errors import Unavailable
from crannog.settings import Settings
from crannog.spark import jars
from crannog.spark.java import find_java


@pytest.fixture
def kept(tmp_path: Path) -> Settings:
    return Settings(jars_dir=str(tmp_path / "jars"))


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stand in for Ivy: makes two small jars; returns the names of the sets that were fetched."""
    names: list[str] = []

    def fetch(recipe: jars.JarSetSpec, settings: Settings, scratch: Path) -> list[Path]:
        names.append(recipe.name)
        made = [scratch / "org_a-1.0.jar", scratch / "org_b-2.0.jar"]
        for jar in made:
            jar.write_bytes(jar.name.encode())
        return made

    monkeypatch.setattr(jars, "_fetch", fetch)
    return names


def test_they_are_resolved_once(kept: Settings, fetches: list[str]) -> None:
    first = jars.ensure(jars.DELTA_SET, kept)
    assert jars.ensure(jars.DELTA_SET, kept) == first
    assert fetches == ["delta"]
    assert [file.name for file in first.files] == ["org_a-1.0.jar", "org_b-2.0.jar"]
    assert first.size == sum(len(file.name) for file in first.files)
    assert first.folder.name == "4.2.0-4.4.0"


def test_the_s3_set_is_resolved_only_when_asked_for(kept: Settings, fetches: list[str]) -> None:
    jars.ensure(jars.DELTA_SET, kept)
    assert jars.present(jars.S3_SET, kept) is None
    jars.ensure(jars.S3_SET, kept)
    assert fetches == ["delta", "s3"]


def test_nothing_is_left_beside_the_sets(kept: Settings, fetches: list[str]) -> None:
    jars.ensure(jars.DELTA_SET, kept)
    assert [each.name for each in Path(kept.jars_dir).iterdir()] == ["4.2.0-4.4.0"]


def test_the_marker_lists_sizes_and_sums(kept: Settings, fetches: list[str]) -> None:
    folder = jars.ensure(jars.DELTA_SET, kept).folder
    listed = json.loads((folder / jars.MARKER).read_text())["files"]
    assert set(listed) == {"org_a-1.0.jar", "org_b-2.0.jar"}
    assert all(entry["size"] == len(name) and len(entry["sha256"]) == 64 for name, entry in listed.items())


@pytest.mark.parametrize("damage", ["gone", "cut", "no marker", "broken marker"])
def test_a_damaged_set_is_seen_and_resolved_again(kept: Settings, fetches: list[str], damage: str) -> None:
    found = jars.ensure(jars.DELTA_SET, kept)
    marker = found.folder / jars.MARKER
    match damage:
        case "gone":
            found.files[0].unlink()
        case "cut":
            found.files[0].write_bytes(b"x")
        case "no marker":
            marker.unlink()
        case "broken marker":
            marker.write_text("{")
    assert jars.present(jars.DELTA_SET, kept) is None
    assert jars.ensure(jars.DELTA_SET, kept) == found
    assert fetches == ["delta", "delta"]


def test_sums_show_what_sizes_do_not(kept: Settings, fetches: list[str]) -> None:
    found = jars.ensure(jars.DELTA_SET, kept)
    content = found.files[0].read_bytes()
    found.files[0].write_bytes(content[::-1])
    assert jars.present(jars.DELTA_SET, kept) is not None
    assert jars.present(jars.DELTA_SET, kept, check_sums=True) is None


def test_two_that_resolve_at_once_end_with_one_set(
    kept: Settings, monkeypatch: pytest.MonkeyPatch, fetches: list[str]
) -> None:
    both, fetch, found = threading.Barrier(2, timeout=30), jars._fetch, []

    def fetch_together(*arguments: object) -> list[Path]:
        made = fetch(*arguments)  # type: ignore[arg-type]
        both.wait()
        return made

    monkeypatch.setattr(jars, "_fetch", fetch_together)
    threads = [threading.Thread(target=lambda: found.append(jars.ensure(jars.DELTA_SET, kept))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 2
    assert found[0] == found[1]
    assert [each.name for each in Path(kept.jars_dir).iterdir()] == ["4.2.0-4.4.0"]


def test_a_failed_resolution_leaves_nothing_and_says_what_to_do(
    kept: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "spark"
    (home / "bin").mkdir(parents=True)
    (home / "jars").mkdir()
    submit = home / "bin" / "spark-submit"
    submit.write_text(
        "#!/bin/sh\necho ':: UNRESOLVED ::' >&2\necho ' :: unresolved dependency: io.delta#x;1: not found' >&2\nexit 1\n"
    )
    submit.chmod(0o755)
    monkeypatch.setattr(jars, "spark_home", lambda: home)
    with pytest.raises(
        Unavailable, match=r"unresolved dependency: io.delta#x;1: not found\).*python -m crannog.spark.jars"
    ):
        jars.ensure(jars.DELTA_SET, kept)
    assert list(Path(kept.jars_dir).iterdir()) == []


def test_a_folder_that_cannot_be_written_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="CRANNOG_JARS_DIR"):
        jars.ensure(jars.DELTA_SET, Settings(jars_dir=str(tmp_path / "file" / "jars")))


@pytest.mark.parametrize(
    ("jar", "module"),
    [
        ("netty-codec-4.2.13.Final.jar", "netty-codec"),
        ("json4s-core_2.13-4.0.7.jar", "json4s-core_2.13"),
        ("netty-tcnative-boringssl-static-2.0.76.Final-linux-x86_64.jar", "netty-tcnative-boringssl-static"),
        ("hadoop-client-api-3.5.0.jar", "hadoop-client-api"),
        ("RoaringBitmap-1.3.0.jar", "RoaringBitmap"),
    ],
)
def test_a_jar_name_tells_its_module(jar: str, module: str) -> None:
    assert jars.module_name(jar) == module


def test_the_versions_belong_to_the_installed_spark() -> None:
    bundled = {each.name for each in (jars.spark_home() / "jars").glob("hadoop-client-api-*.jar")}
    assert bundled == {f"hadoop-client-api-{jars.HADOOP}.jar"}


def test_the_real_set_holds_delta_and_nothing_spark_brings() -> None:
    found = jars.ensure(jars.DELTA_SET, Settings())
    bundled = {jars.module_name(each.name) for each in (jars.spark_home() / "jars").glob("*.jar")}
    ours = {jars.module_name(file.name.partition("_")[2]) for file in found.files}
    assert "delta-spark_4.2_2.13" in ours
    assert not ours & bundled
    assert found.size < 50_000_000


@pytest.mark.slow
def test_resolution_from_nothing_gives_the_same_jars(kept: Settings) -> None:
    find_java(kept)
    fresh = jars.ensure(jars.DELTA_SET, kept)
    assert [file.name for file in fresh.files] == [file.name for file in jars.ensure(jars.DELTA_SET, Settings()).files]
