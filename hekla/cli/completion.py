"""`hekla completion bash|zsh|fish`: a script that completes commands and flags; the shell asks
nobody while the user types."""

from __future__ import annotations

import argparse
from importlib import import_module

from hekla.cli.arguments import Parser

SHELLS = ("bash", "zsh", "fish")


def parser() -> Parser:
    result = Parser("hekla completion", __doc__)
    result.add_argument("shell", choices=SHELLS)
    return result


def main(argv: list[str]) -> int:
    """Print the script; exit code 2 for an unknown shell."""
    shell = parser().parse(argv).shell
    print({"bash": bash, "zsh": zsh, "fish": fish}[shell](), end="")
    return 0


def words() -> dict[str, list[str]]:
    """Command -> the words that may follow it; the commands themselves are under the empty name."""
    from hekla.cli.hekla import COMMANDS, DAEMONS

    found = {"": [*COMMANDS, *DAEMONS]}
    for name, command in COMMANDS.items():
        made = getattr(import_module(command.module), "parser", None)
        found[name] = (
            [word for action in made()._actions for word in follows(action)]
            if made is not None
            else ["--help"]
        )
    return found


def follows(action: argparse.Action) -> list[str]:
    """The words for one flag or argument."""
    if action.option_strings:
        return [option for option in action.option_strings if option.startswith("--")]
    return [str(choice) for choice in action.choices or ()]


def bash() -> str:
    cases = "\n".join(
        f'    "{name}") words="{" ".join(choices)}" ;;' for name, choices in words().items()
    )
    return f"""_hekla() {{
  local words=""
  case "${{COMP_CWORD}}" in 1) set -- "" ;; *) set -- "${{COMP_WORDS[1]}}" ;; esac
  case "$1" in
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _hekla hekla
"""


def zsh() -> str:
    return "autoload -U +X bashcompinit && bashcompinit\n" + bash()


def fish() -> str:
    lines = ["complete -c hekla -f"]
    for name, choices in words().items():
        seen = f"__fish_seen_subcommand_from {name}" if name else "__fish_use_subcommand"
        lines.append(f'complete -c hekla -n "{seen}" -a "{" ".join(choices)}"')
    return "\n".join(lines) + "\n"
