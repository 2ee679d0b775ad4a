"""Plugins of a policy with only some of their hooks in force, as the reference's fixtures list
them."""

from __future__ import annotations

from typing import Any

from hekla.engine.framework.policy import FLAGS


def only(name: str, *hooks: str, **arguments: Any) -> dict[str, Any]:
    """A plugin as the policy file lists it; `hooks` without their prefix, such as `JobOrder`."""
    wanted = {
        flag for flag in FLAGS if flag.removeprefix("enabled").removeprefix("enable") in hooks
    }
    assert len(wanted) == len(hooks), f"{hooks} are not all hooks"
    return {
        "name": name,
        **{flag: flag in wanted for flag in FLAGS},
        **({"arguments": arguments} if arguments else {}),
    }
