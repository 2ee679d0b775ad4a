"""The help text: one layout for all commands, to the blank.  Reference: cli 8."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hekla.cli.vcctl.command import Command, Flag
from hekla.cli.vcctl.tree import LOGGING

NARROWEST = 11
HELP_COMMAND = Command("help", "Help about any command")


def help_text(path: Sequence[Command]) -> str:
    if path[-1].name == "more":
        return more_text(path[0])
    command = path[-1]
    description = command.long or command.short
    return (f"{description}\n\n" if description else "") + usage_text(path)


def usage_text(path: Sequence[Command]) -> str:
    command, full = path[-1], " ".join(step.name for step in path)
    sections = [f"Usage:\n  {full} {'[command]' if command.children else '[flags]'}"]
    if command.example:
        sections.append(f"Examples:\n{command.example}")
    if command.children:
        sections.append("Available Commands:\n" + _commands(path))
    local = [*command.flags, Flag("help", "h", "bool", False, f"help for {command.name}")]
    if len(path) == 1:
        sections.append("Flags:\n" + flag_lines([*local, *LOGGING]))
    else:
        sections += ["Flags:\n" + flag_lines(local), "Global Flags:\n" + flag_lines(LOGGING)]
    if command.children:
        sections.append(f'Use "{full} [command] --help" for more information about a command.')
    return "\n\n".join(sections) + "\n"


def _commands(path: Sequence[Command]) -> str:
    children = [child for child in path[-1].children if not child.hidden]
    if len(path) == 1:
        children.append(HELP_COMMAND)
    width = max(NARROWEST, *(len(child.name) for child in children))
    return "\n".join(
        f"  {child.name:<{width}} {child.short}"
        for child in sorted(children, key=lambda child: child.name)
    )


def flag_lines(flags: Iterable[Flag]) -> str:
    rows = []
    for flag in sorted(flags, key=lambda flag: flag.name):
        if not flag.hidden:
            front = f"  -{flag.short}, --{flag.name}" if flag.short else f"      --{flag.name}"
            rows.append(
                (
                    front + ("" if flag.type == "bool" else f" {flag.type}"),
                    flag.help + _default(flag),
                )
            )
    width = max((len(front) for front, _ in rows), default=0)
    return "\n".join(f"{front:<{width}}   {help}".rstrip() for front, help in rows)


def _default(flag: Flag) -> str:
    if flag.default in ("", "0", 0, False):
        return ""
    return f' (default "{flag.default}")' if flag.type == "string" else f" (default {flag.default})"


def more_text(root: Command) -> str:
    """The additional features of Hekla's commands; the standard help keeps upstream's text."""
    lines = [
        "Beyond the original's commands (these work, and do not stand in the standard help):",
        "",
    ]
    rows: list[tuple[str, str]] = []

    def walk(path: tuple[Command, ...]) -> None:
        command, full = path[-1], " ".join(step.name for step in path)
        if command.hidden:
            rows.append((full, command.short))
        extras = [] if command.hidden else [flag for flag in command.flags if flag.hidden]
        for flag in extras:
            rows.append((f"{full} -{flag.short}, --{flag.name}", flag.help))
        for child in command.children:
            walk((*path, child))

    walk((root,))
    width = max(len(front) for front, _ in rows)
    return "\n".join([*lines, *(f"  {front:<{width}}   {help}" for front, help in rows)]) + "\n"
