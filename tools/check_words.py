"""Refuse words that explain nothing to a reader who has not read the rest of the code.

`python tools/check_words.py` prints each one with its file, its line and what to write instead, and exits with 1 if it finds
any. Words are refused in the names of modules, classes, functions, parameters and fields of the package, the tools and the
benchmarks; phrases are refused in their docstrings, comments, messages and help, and in the documentation. A few words are
refused as identifiers of any kind, variables included, in the tests too. No file is exempt but this one, which has to name
them.
"""

from __future__ import annotations

import ast
import io
import itertools
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CODE = ("src/crannog", "tools", "bench")
"""The folders whose modules are checked."""

WORDS = {
    "desk": "process handover, or what it does",
    "tray": "mailbox",
    "trays": "mailboxes",
    "slip": "message",
    "slips": "messages",
    "wish": "pending change, or request",
    "wishes": "pending changes, or requests",
    "told": "description, report, or the name of the value",
    "asked": "query, request, or requested",
    "whoever": "the role: caller, owner, writer",
    "doomed": "to_delete, or expired",
    "outflow": "stream, or response body",
    "packing": "compression for bytes, pack for staged files",
    "blob": "search text, bytes, or what it holds",
    "nothere": "FallBackToSpark",
    "unproved": "NoRule",
}
"""A word that no name may contain, in lower case, and what to write instead."""

IDENTIFIERS = ("told", "asked")
"""Words that no identifier may be, in the tests too, not even a local variable."""

COLUMNS = ("search_blob",)
"""Names of stored columns, which cannot change."""

PHRASES = {
    "whoever": "the role: 'a process that …', 'anyone who …'",
    "is none": "'there is no …', 'is not a …' or 'does not exist'",
    "so many": "'at most this many', or the number",
    "is told": "'gets', 'is notified', or the error it gets",
    "asked of": "'queries on …', 'required of …'",
    "behind the scenes": "'in the background', or say what happens",
}
"""A phrase that reads as translated, and what to write instead."""

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_PHRASE = re.compile(
    r"\b(" + "|".join(f"(?i:{phrase[0]})" + phrase[1:].replace(" ", r"[\s#]+") for phrase in PHRASES) + r")\b"
)  # "is None" is code; a phrase may continue on the next line
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True, order=True)
class Finding:
    """One refused word or phrase."""

    file: str
    line: int
    found: str
    instead: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.found}: write {self.instead}"


def words_in(name: str) -> Iterator[str]:
    """Yield the refused words in a name in snake_case or CamelCase."""
    for column in COLUMNS:
        name = name.replace(column, "")
    parts = [part.lower() for part in _PARTS.findall(name)]
    pairs = [first + second for first, second in itertools.pairwise(parts)]
    yield from (word for word in (*parts, *pairs) if word in WORDS)


def phrases_in(text: str) -> Iterator[tuple[int, str]]:
    """Yield the refused phrases in a text, each with its line, counted from 0."""
    for match in _PHRASE.finditer(text):
        yield text.count("\n", 0, match.start()), re.sub(r"[\s#]+", " ", match[1]).lower()


def check_code(file: str, source: str) -> list[Finding]:
    """Return the findings in a module: in its own name, the names it defines, its strings and its comments."""
    tree = ast.parse(source)
    findings = [
        Finding(file, line, f"the name {name} has the word {word!r}", WORDS[word])
        for line, name in ((1, Path(file).stem), (1, Path(file).parent.name), *_defined_names(tree))
        for word in words_in(name)
    ]
    findings += check_identifiers(file, tree)
    for first, text in (*_strings(tree), *_comments(source)):
        findings += _phrase_findings(file, first, text)
    return sorted(set(findings))


def check_identifiers(file: str, tree: ast.Module) -> list[Finding]:
    """Return the findings among the identifiers of a module: variables, attributes, parameters and definitions."""
    names = (
        (node.lineno, getattr(node, field))
        for node in ast.walk(tree)
        for kind, field in ((ast.Name, "id"), (ast.Attribute, "attr"), (ast.arg, "arg"), (_DEFINITIONS, "name"))
        if isinstance(node, kind)
    )
    return [Finding(file, line, f"the identifier {name}", WORDS[name]) for line, name in names if name in IDENTIFIERS]


def check_document(file: str, text: str) -> list[Finding]:
    """Return the findings in a page of the documentation."""
    return sorted(set(_phrase_findings(file, 1, text)))


def check_project(root: Path) -> list[Finding]:
    """Return the findings in the code and the documentation of the project in a folder."""
    findings: list[Finding] = []
    for folder in CODE:
        for path in sorted((root / folder).rglob("*.py")):
            if path.name != Path(__file__).name:
                findings += check_code(str(path.relative_to(root)), path.read_text(encoding="utf-8"))
    for path in sorted((root / "tests").rglob("*.py")):
        findings += check_identifiers(str(path.relative_to(root)), ast.parse(path.read_text(encoding="utf-8")))
    for path in (*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md")), root / "bench" / "RESULTS.md"):
        findings += check_document(str(path.relative_to(root)), path.read_text(encoding="utf-8"))
    return findings


def _phrase_findings(file: str, first: int, text: str) -> Iterator[Finding]:
    for line, phrase in phrases_in(text):
        yield Finding(file, first + line, f"the phrase {phrase!r}", PHRASES[phrase])


def _defined_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the names of classes, functions, parameters and fields, each with its line."""
    for node in ast.walk(tree):
        if isinstance(node, _DEFINITIONS):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        if isinstance(node, ast.ClassDef):
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    yield field.lineno, field.target.id


def _strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield all strings, each with its line: docstrings, messages, help."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the comments, those on consecutive lines as one text."""
    first, lines = 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if lines and token.start[0] != first + len(lines):
                yield first, "\n".join(lines)
                lines = []
            first = first if lines else token.start[0]
            lines.append(token.string)
    yield first, "\n".join(lines)


def main() -> int:
    """Print the findings and return the exit code."""
    findings = check_project(Path(__file__).parent.parent)
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
