"""The page about the command line: every command with what it takes, and an example."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reference.cli_examples import EXAMPLES
from reference.markdown import code, document, paragraphs, table


def page() -> str:
    """Return the page."""
    lines = [
        "# Command line",
        "",
        "`crannog [--warehouse DIR | --server URL] COMMAND`. The place is given before the command, or by the settings",
        "(`CRANNOG_WAREHOUSE`, `crannog.toml`). `--json` gives answers for programs. Exit codes: 0 done, 2 the request is wrong,",
        "3 conflict, 4 overloaded or out of time, 5 unavailable, 1 anything else ([errors](errors.md)).",
        "",
    ]
    for path, command in commands():
        title = " ".join(path) or "crannog"
        lines += [f"## {title}", "", *paragraphs(command.help or "")]
        if not path:
            lines += [
                *_options(command),
                "Commands: " + ", ".join(f"[`{name}`](#{name})" for name in sorted(command.commands)) + ".",
                "",
            ]
            continue
        if hasattr(command, "commands"):
            lines += [
                *_options(command),
                "Commands: " + ", ".join(f"[`{name}`](#{path[0]}-{name})" for name in command.commands) + ".",
                "",
            ]
            continue
        lines += ["```", usage(path, command), "```", "", *_arguments(command), *_options(command)]
        if path in EXAMPLES:
            lines += ["For example:", "", "```sh", *EXAMPLES[path], "```", ""]
    return document(lines)


def commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the program, then every group and command with the words that call it."""
    from typer.main import get_command

    from crannog.cli.main import app

    yield from _below((), get_command(app))


def _below(path: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        if not child.hidden:
            yield from _below((*path, name), child)


def usage(path: tuple[str, ...], command: Any) -> str:
    """Return how a command is called, in one line."""
    words = [_argument(each) for each in command.params if each.param_type_name == "argument"]
    needed = [
        f"{each.opts[0]} {_value(each)}"
        for each in command.params
        if each.param_type_name == "option" and each.required
    ]
    optional = any(
        each.param_type_name == "option" and not each.required and each.name != "help" for each in command.params
    )
    return " ".join(["crannog", *path, *words, *needed, *(["[options]"] if optional else [])])


def _argument(argument: Any) -> str:
    shown = argument.metavar or str(argument.name).upper()
    return shown if argument.required else f"[{shown}]"


def _arguments(command: Any) -> list[str]:
    rows = [
        (code(each.metavar or str(each.name).upper()), each.help or "")
        for each in command.params
        if each.param_type_name == "argument"
    ]
    return table(("argument", ""), rows)


def _options(command: Any) -> list[str]:
    rows = []
    for each in command.params:
        if each.param_type_name != "option" or each.name == "help":
            continue
        names = ", ".join(code(name) for name in (*each.opts, *each.secondary_opts))
        rows.append(
            (
                names + ("" if each.is_flag else f" {code(_value(each))}"),
                (each.help or "") + (" Must be given." if each.required else ""),
                _default(each),
            )
        )
    return table(("option", "", "default"), rows)


def _value(option: Any) -> str:
    """Return the word that stands for an option's value."""
    kind = str(getattr(getattr(option, "type_descriptor", None), "annotation", ""))
    return option.metavar or ("NUMBER" if "int" in kind or "float" in kind else "TEXT")


def _default(option: Any) -> str:
    if isinstance(option.show_default, str):
        return code(option.show_default)
    if option.required or option.is_flag or option.default in (None, "", 0) or callable(option.default):
        return ""
    return code(str(option.default))
