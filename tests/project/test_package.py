"""The package as it is installed: its metadata, its lists of requirements, and the wheel in an environment of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from crannog.version import VERSION
from test_missing import NOT_IN_THE_CLIENT

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CLIENT = ("pyarrow", "pydantic", "pydantic-settings", "typer", "rich", "httpx")
PARTS = ("postgres", "polars", "tracing")


def names(requirements: list[str]) -> list[str]:
    """The names of requirements, without versions, extras and markers."""
    return [re.match(r"[\w-]+", requirement).group() for requirement in requirements]  # type: ignore[union-attr]


def listed(name: str) -> list[str]:
    """The names in a file of requirements, those of the files that it includes too."""
    found = []
    for line in (ROOT / "requirements" / name).read_text().splitlines():
        if line.startswith("-r "):
            found += listed(line.removeprefix("-r "))
        elif line and not line.startswith("#"):
            found += names([line])
    return found


def test_the_lists_of_requirements_are_those_of_the_package() -> None:
    extras = PROJECT["optional-dependencies"]
    assert listed("client.in") == list(CLIENT) == names(PROJECT["dependencies"])[: len(CLIENT)]
    assert sorted(listed("package.in")) == sorted(names(PROJECT["dependencies"]))
    assert sorted(listed("extras.in")) == sorted(names([each for part in PARTS for each in extras[part]]))
    assert set(names(extras["dev"])) == set(listed("dev.in"))
    assert set(names(extras["test"] + extras["bench"])) <= set(listed("test.in") + listed("extras.in"))
    locked = (ROOT / "requirements" / "all.txt").read_text()
    for name in listed("all.in"):
        assert re.search(rf"^{name}(\[.*?\])?==", locked, re.MULTILINE | re.IGNORECASE), name


def test_the_guide_lists_what_the_client_needs() -> None:
    guide = (ROOT / "docs" / "client.md").read_text()
    assert f"pip install --no-deps crannog\npip install {' '.join(CLIENT)}\n" in guide
    for part in PARTS:
        assert f"'crannog[{part}]'" in guide


def test_no_advice_names_an_extra_that_does_not_exist() -> None:
    for folder in ("src", "docs"):
        for file in (ROOT / folder).rglob("*"):
            if file.suffix in (".py", ".md"):
                for extra in re.findall(r"crannog\[(\w+)\]", file.read_text()):
                    assert extra in PROJECT["optional-dependencies"], f"{file}: crannog[{extra}]"


def test_the_changelog_has_this_version() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert headings[1].startswith(VERSION)


# -- from the built wheel ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the source."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", "dist", "."]
    subprocess.run(build, cwd=folder, check=True, timeout=240)
    [made] = (folder / "dist").glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, and this environment's packages behind it."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True, with_pip=False)
    install = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "-q", "--no-deps"]
    subprocess.run([*install, str(wheel)], check=True, timeout=240)
    site = next((folder / "lib").glob("python*/site-packages"))
    (site / "others.pth").write_text(sysconfig.get_path("purelib"))
    return folder


def run(environment: Path, *command: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CRANNOG_PORT"))}
    program, *arguments = command
    return subprocess.run(
        [str(environment / "bin" / program), *arguments],
        cwd=folder,
        env=env | variables,
        capture_output=True,
        text=True,
        timeout=280,
    )


@pytest.mark.slow
def test_the_wheel_has_its_data_and_its_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        inside = packed.namelist()
        metadata = packed.read(next(name for name in inside if name.endswith("METADATA"))).decode()
    for path in ("py.typed", "builds/build_events.binpb", "builds/build_events.proto"):
        assert f"crannog/{path}" in inside
    for folder in ("spark/conf", "server/pages"):
        files = [
            file for file in (ROOT / "src/crannog" / folder).rglob("*") if file.is_file() and file.suffix != ".pyc"
        ]
        assert {str(file.relative_to(ROOT / "src")) for file in files} <= set(inside)
    assert metadata.startswith("Metadata-Version: ")
    assert f"\nVersion: {VERSION}\n" in metadata
    assert "\nDescription-Content-Type: text/markdown\n" in metadata
    for name in names(PROJECT["dependencies"]):
        assert f"\nRequires-Dist: {name}" in metadata


@pytest.mark.slow
def test_installed_plainly_it_runs_an_embedded_lake_and_the_demo(installed: Path, tmp_path: Path) -> None:
    where = "import crannog, pathlib; print(pathlib.Path(crannog.__file__).is_relative_to(__import__('sys').prefix))"
    assert run(installed, "python", "-c", where, folder=tmp_path).stdout == "True\n"
    lake = (
        "import crannog, pyarrow as pa\n"
        "with crannog.connect('warehouse') as lake:\n"
        "    table = lake.create_table('a.b.c', pa.schema([('n', pa.int64())]))\n"
        "    table.append([{'n': 1}])\n"
        "    print(lake.sql('select sum(n) as n from a.b.c').rows())"
    )
    ran = run(installed, "python", "-c", lake, folder=tmp_path)
    assert ran.stdout == "[{'n': 1}]\n", ran.stderr
    shown = run(installed, "crannog", "demo", "--json", folder=tmp_path)
    assert json.loads(shown.stdout)["ok"], shown.stderr


@pytest.mark.slow
def test_installed_plainly_it_serves(installed: Path, tmp_path: Path) -> None:
    ports = {f"CRANNOG_{name}": "0" for name in ("PORT", "OTLP_HTTP_PORT", "OTLP_GRPC_PORT")}
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | ports
    server = subprocess.Popen(
        [str(installed / "bin" / "crannog"), "serve"], cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        address = re.search(r"http://[\w.:]+", server.stdout.readline())
        assert address is not None
        ran = run(installed, "crannog", "--server", address.group(), "tables", "--json", folder=tmp_path)
        assert (ran.returncode, json.loads(ran.stdout)) == (0, [])
    finally:
        server.terminate()
        assert server.wait(60) == 0


@pytest.mark.slow
def test_a_thin_installation_has_the_client_and_says_what_the_rest_needs(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "thin"
    venv.create(environment, symlinks=True, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "install", "-q"]
    subprocess.run([*pip, "--no-deps", str(wheel)], check=True, timeout=240)
    # The client's packages and what those need, by links: the rest of this environment is not to be seen.
    site, here = next((environment / "lib").glob("python*/site-packages")), Path(sysconfig.get_path("purelib"))
    left_out = {"crannog", "__editable__", *(name.partition("_")[0] for name in NOT_IN_THE_CLIENT)}
    for path in here.iterdir():
        module = path.name.partition(".")[0].partition("-")[0].lower()
        if module not in left_out and path.suffix != ".pth":
            (site / path.name).symlink_to(path)
    for arguments in (("serve",), ("demo",), ("--warehouse", ".", "sql", "select 1")):
        ran = run(environment, "crannog", *arguments, folder=tmp_path)
        assert ran.returncode == 5
        assert ran.stderr.startswith("crannog: ")
        assert ran.stderr.endswith("which is not installed: pip install crannog\n")
    away = run(environment, "crannog", "--server", "http://127.0.0.1:9", "tables", folder=tmp_path)
    assert away.returncode == 5
    assert "http://127.0.0.1:9" in away.stderr
