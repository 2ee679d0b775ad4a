"""The policy of a question: that of the scheduler, or of a file."""

from __future__ import annotations

from pathlib import Path

from hekla.cli.arguments import worded
from hekla.engine.framework.policy import Policy
from hekla.scheduler.plugin_files import PluginFileError, find
from hekla.scheduler.policy_file import PolicyFileError, named_files, parse
from hekla.scheduler.replay import recorded_policy
from hekla.simulator.whatif.copy import ClusterCopy


class PolicyProblem(Exception):
    """There is no policy to answer with; the text says why."""


def policy_of(copy: ClusterCopy, run_plugins: bool) -> Policy:
    """The policy that the scheduler had in force.  Raises PolicyProblem.

    Plugin files come with the snapshot as text.  To run what another machine sends is a decision of
    the user's, so without `run_plugins` that is an error.
    """
    sources = copy.policy[2]
    if sources and not run_plugins:
        raise PolicyProblem(
            f"the scheduler has plugins of its own ({', '.join(sorted(sources))}), and an answer needs "
            "their code to run here; --run-plugins lets it"
        )
    return policy_recorded(copy.policy)


def policy_recorded(recorded: tuple[str, str, dict[str, str]] | None) -> Policy:
    """The policy of a recording: name, text and plugin files; the built-in one where there is none.
    Raises PolicyProblem."""
    try:
        return recorded_policy(*(recorded or ("", "", {})))
    except (PolicyFileError, PluginFileError) as error:
        raise PolicyProblem(f"the recorded policy cannot be used here: {error}") from error


def policy_in(path: str) -> Policy:
    """The policy of a file of the user's own.  Raises PolicyProblem."""
    try:
        text = Path(path).read_text()
        found = find(named_files(text, path))
        return parse(text, path, found.plugins, found.broken)
    except (OSError, UnicodeDecodeError, PolicyFileError, PluginFileError) as error:
        raise PolicyProblem(worded(error)) from error
