"""Kinds of a definition without schema work: serves until objects.custom does it properly."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from hekla.local.apiserver.kind import Decoded, Json, Kind, Strategy, Subresource
from hekla.local.apiserver.objects.errors import BadBody
from hekla.local.apiserver.objects.scale import Scale


def kinds_of(crd: Json) -> list[Kind]:
    spec = crd["spec"]
    names = spec["names"]
    found = []
    for version in spec["versions"]:
        if not version.get("served", True):
            continue
        subs = {}
        wanted = version.get("subresources") or {}
        if "status" in wanted:
            subs["status"] = Subresource()
        scale = None
        if "scale" in wanted:
            subs["scale"] = Subresource(group="autoscaling", version="v1", kind="Scale")
            s = wanted["scale"]
            path = lambda text: tuple(text.strip(".").split(".")) if text else None
            scale = Scale(path(s["specReplicasPath"]), path(s["statusReplicasPath"]), path(s.get("labelSelectorPath")), True)

        def drop_status(tree: Json) -> None:
            tree.pop("status", None)

        def keep_status(new: Json, old: Json) -> None:
            new.pop("status", None)
            if "status" in old:
                new["status"] = old["status"]

        def only_status(new: Json, old: Json) -> None:
            status = new.get("status")
            new.clear()
            new.update(old)
            if status is not None:
                new["status"] = status

        has_status = "status" in subs
        strategy = Strategy(
            prepare_create=drop_status if has_status else (lambda tree: None),
            prepare_update=keep_status if has_status else (lambda new, old: None),
            prepare_status=only_status,
            generation=True,
            unconditional_update=False,
        )
        found.append(
            Kind(
                spec["group"], version["name"], names["kind"], names["plural"], spec["scope"] == "Namespaced",
                names.get("singular") or names["kind"].lower(), tuple(names.get("shortNames") or ()), tuple(names.get("categories") or ()),
                subresources=subs, strategy=strategy, decode=decode, custom=True, scale=scale,
            )
        )
    return found


def decode(body: bytes, media: str, validation: str) -> Decoded:
    try:
        tree: Any = yaml.safe_load(body) if media == "application/yaml" else msgspec.json.decode(body)
    except Exception as error:
        raise BadBody(f"the object provided is unrecognized: {error}") from error
    if not isinstance(tree, dict):
        raise BadBody("the object provided is unrecognized")
    return Decoded(tree)
