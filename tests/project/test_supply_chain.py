"""Licences of everything pinned, the SBOM of a release, and what is reported of known vulnerabilities."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from supply_chain import licences, vulnerabilities
from supply_chain.packages import ROOT, Package, pinned
from supply_chain.sbom import sbom
from test_package import PROJECT, names


def test_the_licences_of_all_pinned_packages_are_allowed() -> None:
    packages = licences.all_packages()
    assert len(packages) > 200
    assert licences.problems(packages) == []


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("MIT OR GPL-3.0-only", True),
        ("MIT AND GPL-3.0-only", False),
        ("(MIT OR GPL-3.0-only) AND Apache-2.0", True),
        ("GPL-3.0-only OR (MIT AND AGPL-3.0-only)", False),
        ("MIT AND", False),
        ("(MIT", False),
        ("MIT Apache-2.0", False),
        ("", False),
    ],
)
def test_a_licence_is_allowed_if_it_leaves_a_choice(expression: str, allowed: bool) -> None:
    assert licences.is_allowed(expression) is allowed
    assert bool(licences.problems([Package("pypi", "some", "1", expression)])) is not allowed


def test_an_exception_is_for_one_licence() -> None:
    assert licences.problems([Package("pypi", "psycopg", "3", "LGPL-3.0-only")]) == []
    assert licences.problems([Package("pypi", "psycopg", "4", "AGPL-3.0-only")]) != []


def test_the_sbom_lists_what_a_release_is_made_of() -> None:
    document: dict[str, Any] = sbom()
    assert (document["bomFormat"], document["specVersion"], document["version"]) == ("CycloneDX", "1.5", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", document["serialNumber"])
    assert document == sbom(), "the same packages give the same document"
    components = {each["purl"]: each for each in document["components"]}
    assert len(components) == len(document["components"])
    scopes = {each["name"]: each["scope"] for each in document["components"]}
    for name in names(PROJECT["dependencies"]):
        assert scopes[name.lower()] == "required", name
    assert {scopes["psycopg"], scopes["polars"]} == {"optional"}
    assert "starlette" in scopes, "what a dependency needs is one too"
    assert not {"pytest", "ruff", "vite"} & scopes.keys()
    assert any(url.startswith("pkg:npm/%40codemirror/state@") for url in components)
    assert any(url.startswith("pkg:maven/io.delta/delta-spark_") for url in components)
    assert all(each["licenses"] for each in components.values())
    versions = {package.url for package in pinned(ROOT / "requirements" / "all.txt")}
    assert {url for url in components if url.startswith("pkg:pypi/")} <= versions
    refs = {*components, document["metadata"]["component"]["bom-ref"]}
    assert {each["ref"] for each in document["dependencies"]} == refs
    assert all(set(each["dependsOn"]) <= refs for each in document["dependencies"])


class Answers:
    """Stands for pip-audit and npm."""

    def __init__(self, report: dict[str, Any] | None) -> None:
        self.report = report

    def __call__(self, command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
        text = json.dumps(self.report)
        if self.report is not None and "-o" in command:
            Path(command[list(command).index("-o") + 1]).write_text(text)
        return subprocess.CompletedProcess(command, 1, text if self.report else "", "no route to the database")


def test_a_database_that_does_not_answer_is_not_a_clean_result(capsys: pytest.CaptureFixture[str]) -> None:
    clean = {"dependencies": [{"name": "a", "version": "1", "vulns": []}], "vulnerabilities": {}}
    hole = {"id": "CVE-1", "fix_versions": ["2"]}
    holes = {"dependencies": [{"name": "a", "version": "1", "vulns": [hole]}]}
    skipped = {"dependencies": [{"name": "a", "skip_reason": "not found"}]}
    look_up = vulnerabilities.of_python
    assert look_up("pip-audit", Answers(clean)) == []
    assert look_up("pip-audit", Answers(holes)) == ["a 1: CVE-1, mended in 2"]
    assert look_up("pip-audit", Answers(skipped)) is None
    assert look_up("pip-audit", Answers(None)) is None
    assert "no route to the database" in capsys.readouterr().err
    assert vulnerabilities.of_the_pages(Answers({"message": "405"})) is None
    for results, code in (({"a": []}, 0), ({"a": ["x"], "b": None}, 1), ({"a": [], "b": None}, 2)):
        assert vulnerabilities.verdict(results) == code  # type: ignore[arg-type]
    assert "b: NOT CHECKED" in capsys.readouterr().out


def test_every_test_that_the_threat_model_names_exists() -> None:
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", text))
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).is_file()] == []
    table = text.partition("## Attacks")[2].partition("## What")[0]
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]
    assert all("`tests/" in row for row in rows), "each attack has a test"
