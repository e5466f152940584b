"""Runs the examples of a page of the documentation, from its top to its end, in a folder of its own.

- A `python` block is executed; all blocks of a page share their names. A `text` block right behind it is what it prints.
- A `console` block is a transcript: `$ ` and a command, then what it prints. `crannog` runs in this process, so that all
  pages share one Spark; anything else is given to bash. `$ crannog serve` starts a real server, and so does the first
  example that speaks of port 7117.
- A block without prompts is run too, if it is nothing but commands: `crannog` or `curl`.
- Each line of a `filter` block is a filter of the search for traces, asked of the warehouse `warehouse`.
- A block with `title="NAME"` is a file, which is written before the examples behind it run.
- A block is left out if the paragraph above it says why: *Not run by the tests: REASON.* Any other is an error.

What is printed is compared loosely: times, sizes and hashes may differ, and … stands for anything.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import signal
import subprocess
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import crannog
from crannog.cli import main as cli
from reference.command_line import commands
from servers import PROGRAM, Server

_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^`\n]*)\n(?P<text>.*?)^(?P=indent)```[ ]*$", re.MULTILINE | re.DOTALL)
_LEFT_OUT = re.compile(r"(?:\*|<!-- )Not run by the tests: (?P<reason>[^*>]+)\.(?:\*| -->)\s*\Z")
_TITLE = re.compile(r'title="([^"]+)"')
_SHELL = re.compile(r"[|<>&;`]|\$\(")
_ADDRESS = "127.0.0.1:7117"
_HOME = "/home/you"
_TRANSCRIPTS = {"console", "sh", "bash", "shell", "shell-session", ""}


@dataclass(frozen=True)
class Example:
    """One block of a page."""

    line: int
    language: str
    text: str
    title: str = ""
    prints: str | None = None
    left_out: str = ""

    @property
    def commands(self) -> list[tuple[str, str]]:
        """The commands of a transcript, each with what it prints; empty for any other block."""
        if self.language not in _TRANSCRIPTS or self.title:
            return []
        found: list[tuple[str, str]] = []
        unfinished = False
        for line in self.text.splitlines():
            if unfinished:
                found[-1] = (f"{found[-1][0][:-1]}{line.removeprefix('>').strip()}", "")
            elif line.startswith("$ "):
                found.append((line[2:], ""))
            elif found:
                found[-1] = (found[-1][0], f"{found[-1][1]}{line}\n")
            unfinished = bool(found) and not found[-1][1] and found[-1][0].endswith("\\")
        return found

    @property
    def bare_commands(self) -> list[str]:
        """The commands of a block without prompts, each from its first line to where its quotes close; empty if it has anything else."""
        if self.language not in ("", "sh", "bash") or self.commands or self.title:
            return []
        known = {path[0] for path, _ in commands() if path}
        found, begun = [], ""
        for line in self.text.splitlines():
            begun = f"{begun}\n{line}" if begun else line
            try:
                words = shlex.split(begun, comments=True)
            except ValueError:
                continue  # a quote is still open
            if words[:1] != ["curl"] and not (words[:1] == ["crannog"] and words[1:2] and words[1] in known):
                return []
            found.append(begun)
            begun = ""
        return [] if begun else found

    @property
    def runs(self) -> bool:
        if self.left_out or self.title:
            return False
        return self.language in ("python", "filter") or bool(self.commands or self.bare_commands)

    @property
    def is_forgotten(self) -> bool:
        """Nobody runs it, and nobody says why."""
        return not (self.runs or self.title or self.left_out)


def examples_of(text: str) -> list[Example]:
    """Return the blocks of a page, in their order."""
    found: list[Example] = []
    ends: list[int] = []
    for block in _FENCE.finditer(text):
        language = re.match(r"[\w-]*", block["info"].strip())
        title = _TITLE.search(block["info"])
        reason = _LEFT_OUT.search(text[: block.start()])
        body = re.sub(rf"^{block['indent']}", "", block["text"], flags=re.MULTILINE)
        example = Example(
            line=text.count("\n", 0, block.start()) + 1,
            language=language[0] if language else "",
            text=body,
            title=title[1] if title else "",
            left_out=reason["reason"] if reason else "",
        )
        behind = found and found[-1].language == "python" and not text[ends[-1] : block.start()].strip()
        if example.language == "text" and not example.title and behind:
            last = found[-1]
            found[-1] = Example(last.line, last.language, last.text, last.title, body, last.left_out)
        else:
            found.append(example)
        ends.append(block.end())
    return found


def needs_spark(text: str) -> bool:
    """Tell whether a page's examples do what only Spark can."""
    words = r"\.(fold|compact|erase|expire|derive|to_spark)\(|engine=.spark|crannog (fold|compact|erase|expire|demo)|--engine spark"
    return any(re.search(words, example.text) for example in examples_of(text) if example.runs)


@dataclass
class Page:
    """A page being read and done, in the working folder."""

    path: Path
    folder: Path
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "example"})
    server: Server | None = None

    def run(self) -> int:
        """Run all examples; AssertionError says which one did not do what the page says. Returns how many ran."""
        ran = 0
        try:
            for example in examples_of(self.path.read_text()):
                if example.title and not example.left_out:
                    (self.folder / example.title).write_text(example.text)
                elif example.runs:
                    ran += 1
                    self._run(example)
                else:
                    assert example.left_out, (
                        f"{self._at(example)}: nobody runs this block, and nothing above it says why"
                    )
        finally:
            self._close()
        return ran

    def _close(self) -> None:
        for value in self.names.values():
            if type(value).__module__.startswith("crannog.") and type(value).__name__ in ("Lake", "RemoteLake"):
                value.close()
        if self.server is not None:
            self.server.kill()

    def _run(self, example: Example) -> None:
        if example.language == "python":
            self._python(example)
        elif example.language == "filter":
            self._filters(example)
        elif example.commands:
            self._transcript(example)
        else:
            self._bare_commands(example)

    def _filters(self, example: Example) -> None:
        with crannog.connect(str(self.folder / "warehouse")) as lake:
            for line in example.text.splitlines():
                try:
                    lake.traces.search(where=line)
                except crannog.CrannogError as error:
                    raise AssertionError(f"{self._at(example)}: `{line}`: {error.message}") from None

    def _bare_commands(self, example: Example) -> None:
        for command in example.bare_commands:
            code, printed = self._command(command)
            assert code == 0, f"{self._at(example)}: `{command}` ended with {code}:\n{printed}"
            assert '{"error"' not in printed, f"{self._at(example)}: `{command}` answered {printed}"

    def _python(self, example: Example) -> None:
        printed = io.StringIO()
        code = compile("\n" * example.line + self._addressed(example.text), str(self.path), "exec")
        try:
            with redirect_stdout(printed):
                exec(code, self.names)
        except BaseException:
            raise AssertionError(f"{self._at(example)} failed:\n{traceback.format_exc(limit=-3)}") from None
        if example.prints is not None:
            self._compare(example, example.prints, printed.getvalue())

    def _transcript(self, example: Example) -> None:
        for command, expected in example.commands:
            code, printed = self._command(command)
            told_to_fail = "crannog: " in expected or "error" in expected
            assert code == 0 or told_to_fail, f"{self._at(example)}: `{command}` ended with {code}:\n{printed}"
            self._compare(example, expected, printed, command)

    def _command(self, command: str) -> tuple[int, str]:
        if re.match(r"crannog( --warehouse \S+)? serve\b", command):
            return 0, self._serve()
        command = self._addressed(command)
        if command.startswith("crannog ") and not _SHELL.search(re.sub(r"'[^']*'|\"[^\"$`]*\"", "", command)):
            return self._crannog(shlex.split(command, comments=True)[1:])
        path = f"{Path(PROGRAM).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def _crannog(self, arguments: list[str]) -> tuple[int, str]:
        before, interrupt = sys.argv, signal.getsignal(signal.SIGINT)
        printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        sys.argv = ["crannog", *arguments]
        try:
            with redirect_stdout(printed), redirect_stderr(printed):
                cli.run()
            code: Any = 0
        except SystemExit as ended:
            code = ended.code
        finally:
            sys.argv = before
            signal.signal(signal.SIGINT, interrupt)
        return (code if isinstance(code, int) else 0), printed.buffer.getvalue().decode()  # type: ignore[attr-defined]

    def _serve(self) -> str:
        if self.server is None:
            # Without upkeep and its audit a server needs no Spark of its own.
            self.server = Server(self.folder / "warehouse", audit=False, scheduler_tick_s=3600)
        return self.server.lines[0].replace(f"{self.folder}/", "")  # as it is told where one starts it in the folder

    def _addressed(self, text: str) -> str:
        """Put the address of the page's own server where the page has the usual one."""
        for usual in (_ADDRESS, "localhost:7117"):
            if usual in text:
                self._serve()
                assert self.server is not None
                text = text.replace(usual, self.server.url.partition("://")[2])
        return text

    def _compare(self, example: Example, expected: str, printed: str, command: str = "") -> None:
        if not expected.strip():
            return
        if self.server is not None:
            printed = printed.replace(self.server.url.partition("://")[2], _ADDRESS)
        printed = loosened(printed.replace(str(self.folder), _HOME))
        wanted = loosened(expected)
        pattern = re.escape(wanted).replace("…", ".*")
        said = f"after `{command}`" if command else ""
        assert re.fullmatch(pattern, printed, re.DOTALL), (
            f"{self._at(example)} {said}\nthe page says:\n{wanted}\nit printed:\n{printed}"
        )

    def _at(self, example: Example) -> str:
        return f"{self.path.name}, line {example.line}"


def loosened(text: str) -> str:
    """Return a text without what differs from run to run: times, durations, sizes, hashes, and how it is spaced."""
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00)?", "TIME", text)
    text = re.sub(r"\d[\d,.]*(?= ?(s|ms|B|KiB|MiB|GiB)\b)", "N", text)
    text = re.sub(r"\b[0-9a-f]{8,}\b|\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "HEX", text)
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)
