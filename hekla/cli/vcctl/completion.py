"""`vcctl completion bash|zsh|fish`: a script that completes commands and flags.  Hekla's own.

The words come from the table of commands; the shell asks nobody while the user types.
"""

from __future__ import annotations

from collections.abc import Iterator

from hekla.cli.vcctl.command import Command, CommandError, Invocation
from hekla.cli.vcctl.parsing import flags_of
from hekla.cli.vcctl.tree import VCCTL

SHELLS = ("bash", "zsh", "fish")


def completion(invocation: Invocation) -> int:
    shell = invocation.arguments[0] if invocation.arguments else ""
    if shell not in SHELLS:
        raise CommandError(f'completion is there for {", ".join(SHELLS)}, not for "{shell}"')
    print({"bash": bash, "zsh": zsh, "fish": fish}[shell](), end="")
    return 0


def words(command: Command = VCCTL, path: tuple[str, ...] = ()) -> Iterator[tuple[str, list[str]]]:
    """Every path of commands and what may follow it."""
    children = [child.name for child in command.children]
    yield " ".join(path), [*children, *(f"--{flag.name}" for flag in flags_of(command))]
    for child in command.children:
        yield from words(child, (*path, child.name))


def bash() -> str:
    cases = "\n".join(f'    "{path}") words="{" ".join(choices)}" ;;' for path, choices in words())
    return f"""_vcctl() {{
  local path="" word words=""
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$word" in -*) ;; *) path="${{path:+$path }}$word" ;; esac
  done
  case "$path" in
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _vcctl vcctl
"""


def zsh() -> str:
    return "autoload -U +X bashcompinit && bashcompinit\n" + bash()


def fish() -> str:
    lines = ["complete -c vcctl -f"]
    for path, choices in words():
        seen = (
            f"test (string join ' ' (commandline -opc | string match -v -- '-*')[2..]) = '{path}'"
        )
        lines.append(f'complete -c vcctl -n "{seen}" -a "{" ".join(choices)}"')
    return "\n".join(lines) + "\n"
