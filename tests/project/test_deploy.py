"""The examples for systemd and containers name commands, settings, files and ports that exist."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from crannog.cli import serve
from crannog.settings import Settings, load_settings
from reference.command_line import commands

ROOT = Path(__file__).parents[2]
CONTAINER = (ROOT / "deploy" / "Containerfile").read_text()
UNIT = (ROOT / "deploy" / "crannog.service").read_text()


def service() -> dict[str, str]:
    """The service's part of the unit; of a name that stands there several times, all values."""
    found: dict[str, str] = {}
    for name, value in re.findall(
        r"^(\w+)=(.*)$", UNIT.partition("[Service]")[2].partition("[Install]")[0], re.MULTILINE
    ):
        found[name] = f"{found[name]} {value}" if name in found else value
    return found


def given(words: str) -> dict[str, str]:
    """The settings among some variables, by name."""
    pairs = [word.partition("=") for word in shlex.split(words)]
    return {name.removeprefix("CRANNOG_").lower(): value for name, _, value in pairs if name.startswith("CRANNOG_")}


def container(instruction: str) -> list[str]:
    return re.findall(rf"^{instruction} (.*)$", CONTAINER.replace("\\\n", " "), re.MULTILINE)


@pytest.mark.parametrize("text", [UNIT, CONTAINER], ids=["systemd", "container"])
def test_variables_are_settings(text: str) -> None:
    for name in re.findall(r"CRANNOG_([A-Z_]+)=", text):
        assert name == "NAME" or name.lower() in Settings.model_fields, name


@pytest.mark.parametrize("words", [service()["Environment"], " ".join(container("ENV"))], ids=["systemd", "container"])
def test_their_values_are_valid(words: str) -> None:
    settings = given(words)
    assert {"warehouse", "jars_dir", "host", "port", "log_format"} <= set(settings)
    assert load_settings(**settings).port == Settings.model_fields["port"].default


@pytest.mark.parametrize(
    "line",
    [
        service()["ExecStart"],
        " ".join(json.loads(container("ENTRYPOINT")[0]) + json.loads(container("CMD")[0])),
        *re.findall(r"^#.* (crannog token .*)$", CONTAINER, re.MULTILINE),
    ],
)
def test_commands_and_their_options_exist(line: str) -> None:
    program, *words = shlex.split(line)
    assert Path(program).name == "crannog"
    [command] = [
        command
        for path, command in commands()
        if path and tuple(words[: len(path)]) == tuple(path) and not hasattr(command, "commands")
    ]
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options


def test_a_service_is_given_the_time_it_takes_to_stop() -> None:
    unit = service()
    assert int(unit["TimeoutStopSec"]) > serve._LONGEST_STOP_S + 1
    # Were its Spark told to stop at the same moment, the task that runs could not finish.
    assert (unit["KillMode"], unit["KillSignal"], container("STOPSIGNAL")) == ("mixed", "SIGTERM", ["SIGTERM"])


def test_a_container_gets_what_its_set_up_needs() -> None:
    copied = [name for line in container("COPY") for name in line.split()[:-1]]
    assert all((ROOT / name).exists() for name in copied)
    [needed] = re.findall(r"^\$\(STAMP\): (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for name in [*needed.split(), "Makefile", "src/crannog"]:
        assert any(name == part or name.startswith(f"{part}/") for part in copied), name
    for name in re.findall(
        r'^(?:readme|license-files) = .*?"([\w.]+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    ):
        assert name in copied
    ports = {str(Settings.model_fields[name].default) for name in ("port", "otlp_http_port", "otlp_grpc_port")}
    assert {port for line in container("EXPOSE") for port in line.split()} == ports


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "crannog.service"
    unit.write_text(UNIT.replace("/opt/crannog/.venv/bin", str(Path(sys.executable).parent)))
    checked = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60)
    assert (checked.returncode, checked.stderr) == (0, "")
