"""Java is found where people keep it, and its absence is told with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from crannog.errors import Unavailable
from crannog.settings import Settings
from crannog.spark import java


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Java, except in the folder returned."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(java, "_USUAL_FOLDERS", (f"{tmp_path}/jvm/*",))
    return tmp_path


def make_java(home: Path, version: str, *, release: bool = True) -> Path:
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("17.0.15", 17),
        ("21", 21),
        ("25-ea", 25),
        ("1.8.0_392", 8),
        ("11.0.2+9", 11),
        ("1", 1),
        ("none", None),
        ("", None),
    ],
)
def test_version_is_read_from_every_way_to_write_it(text: str, version: int | None) -> None:
    assert java.parse_version(text) == version


@pytest.mark.parametrize("release", [True, False])
def test_version_comes_from_the_release_file_or_the_program(tmp_path: Path, release: bool) -> None:
    assert java.version_at(make_java(tmp_path / "j", "21.0.1", release=release)) == 21


def test_a_folder_without_java_has_no_version(tmp_path: Path) -> None:
    assert java.version_at(tmp_path) is None
    broken = make_java(tmp_path / "broken", "17", release=False)
    (broken / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    assert java.version_at(broken) is None


def test_without_java_the_error_says_what_to_install(nowhere: Path) -> None:
    with pytest.raises(Unavailable, match=r"found none.*apt-get install openjdk-17.*CRANNOG_JAVA_HOME"):
        java.find_java(Settings())


def test_an_old_java_is_named(nowhere: Path) -> None:
    make_java(nowhere / "jvm" / "java-11", "11.0.2")
    with pytest.raises(Unavailable, match=r"found only Java 11 in .*java-11"):
        java.find_java(Settings())


def test_usual_folders_give_the_oldest_that_will_do(nowhere: Path) -> None:
    for name, version in (("java-8", "1.8.0_1"), ("temurin-25", "25"), ("java-17", "17.0.1"), ("java-21", "21.0.1")):
        make_java(nowhere / "jvm" / name, version)
    assert java.find_java(Settings()) == java.JavaHome(nowhere / "jvm" / "java-17", 17)


def test_java_home_goes_before_path_and_an_old_one_is_passed_over(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path, at_home = make_java(nowhere / "p", "17"), make_java(nowhere / "h", "21")
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    monkeypatch.setenv("JAVA_HOME", str(at_home))
    assert java.find_java(Settings()).home == at_home
    (at_home / "release").write_text('JAVA_VERSION="1.8.0"')
    assert java.find_java(Settings()).home == on_path


def test_a_link_on_the_path_leads_home(nowhere: Path) -> None:
    home = make_java(nowhere / "real", "17")
    (nowhere / "bin").mkdir()
    (nowhere / "bin" / "java").symlink_to(home / "bin" / "java")
    assert java.find_java(Settings()).home == home


def test_the_setting_is_taken_or_refused_never_passed_over(nowhere: Path) -> None:
    make_java(nowhere / "jvm" / "java-17", "17")
    old = make_java(nowhere / "old", "11")
    with pytest.raises(Unavailable, match="is Java 11, Spark needs 17"):
        java.find_java(Settings(java_home=str(old)))
    with pytest.raises(Unavailable, match="has no working bin/java"):
        java.find_java(Settings(java_home=str(nowhere / "absent")))
    assert java.find_java(Settings(java_home=str(make_java(nowhere / "new", "21")))).version == 21


def test_the_command_prints_or_fails_with_the_advice(nowhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert java.main() == 5
    assert "apt-get" in capsys.readouterr().err
    make_java(nowhere / "jvm" / "java-17", "17")
    assert java.main() == 0
    assert "Java 17" in capsys.readouterr().out
