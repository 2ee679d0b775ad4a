"""Pod Security admission: what the labels of a namespace ask of its pods is enforced, written to
the audit log and warned of.

The checks are `hekla/podrules/podsecurity`; here is when they are made and how they are answered,
as Kubernetes does it.  A namespace without labels costs its pods one look at a policy that is
remembered by the labels.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hekla.api.bounded import BoundedCache
from hekla.api.text.fielderrors import FieldError
from hekla.api.trees import Json
from hekla.local.apiserver.admission.attributes import Attributes
from hekla.local.apiserver.admission.quotas import accepted_in
from hekla.local.apiserver.request.status import forbidden, invalid
from hekla.local.apiserver.storage.registry import Registry
from hekla.local.apiserver.storage.rows import Row
from hekla.podrules.podsecurity.finding import Finding
from hekla.podrules.podsecurity.levels import (
    MODES,
    PREFIX,
    PRIVILEGED,
    LevelVersion,
    Policy,
    policy_of,
)
from hekla.podrules.podsecurity.standards import findings, in_detail, in_short

TEMPLATES: dict[str, tuple[str, ...]] = {
    "replicationcontrollers": ("spec", "template"),
    "podtemplates": ("template",),
    "replicasets.apps": ("spec", "template"),
    "deployments.apps": ("spec", "template"),
    "statefulsets.apps": ("spec", "template"),
    "daemonsets.apps": ("spec", "template"),
    "jobs.batch": ("spec", "template"),
    "cronjobs.batch": ("spec", "jobTemplate", "spec", "template"),
}
"""Collection -> where its objects have the template of their pods."""
JUDGED = ("", "ephemeralcontainers", "resize")
"""The subresources of a pod that can change what it asks of its node; an update of the pod itself
is one too."""
MOST_PODS, MOST_SECONDS = 3000, 0.25
"""How many of the pods that a namespace has are looked at when it changes its policy, and how long:
the server does nothing else."""
KNOWN_POLICIES = 1000
OPEN = (PREFIX + "enforce-policy", str(LevelVersion()))
"""What is noted of a pod in a namespace that lets in all."""


class Configuration(NamedTuple):
    """What a cluster says for namespaces that say nothing, and who is exempt."""

    defaults: Policy = Policy()
    usernames: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()
    runtime_classes: frozenset[str] = frozenset()


class PodSecurity:
    """The admission plugin of namespaces, pods, and kinds with the template of pods."""

    def __init__(self, registry: Registry, configuration: Configuration | None = None) -> None:
        self.registry = registry
        self.configuration = configuration or Configuration()
        self._namespaces = registry["namespaces"].collection
        self._pods = registry["pods"].collection
        self._policies: BoundedCache[
            str, tuple[Mapping[str, str], Policy, tuple[FieldError, ...]]
        ] = BoundedCache(KNOWN_POLICIES)
        self._open: BoundedCache[str, Mapping[str, str]] = BoundedCache(KNOWN_POLICIES)
        """Namespace -> its labels, where they let in every pod and nobody is exempt: most pods are
        answered by this alone."""

    def validate(self, attributes: Attributes) -> None:
        """Refuses what must not be, and says what is wrong with the rest."""
        name = attributes.resource.collection.name
        if name == "pods":
            if attributes.operation in ("CREATE", "UPDATE") and attributes.subresource in JUDGED:
                self._pod(attributes)
        elif name in TEMPLATES:
            # What comes in through `scale` is the object's update here.
            if not attributes.subresource and not attributes.call.route.subresource:
                self._template(attributes, TEMPLATES[name])
        elif name == "namespaces" and not attributes.subresource:
            self._namespace(attributes)

    def applies_to(self, attributes: Attributes) -> bool:
        """Whether an update is anything to this plugin, of which only what it touches is there."""
        name = attributes.resource.collection.name
        if name == "pods":
            if attributes.subresource not in JUDGED or "spec" not in (attributes.object or ()):
                return False
        elif attributes.subresource or name not in TEMPLATES:
            return name == "namespaces" and not attributes.subresource
        policy, errors = self._policy(attributes.namespace)
        return bool(errors) or not policy.is_privileged()

    def _policy(self, namespace: str) -> tuple[Policy, tuple[FieldError, ...]]:
        row = self._namespaces.newest(namespace)
        if row is None:
            return self.configuration.defaults, ()
        known = self._policies.get(namespace)
        if known is None or known[0] is not row.labels:
            known = self._policies[namespace] = (
                row.labels,
                *policy_of(row.labels, self.configuration.defaults),
            )
        return known[1], known[2]

    # --- pods and templates -----------------------------------------------------------------------

    def _pod(self, attributes: Attributes) -> None:
        where = attributes.namespace
        row = self._namespaces.newest(where)
        if row is not None and self._open.get(where) is row.labels:
            attributes.call.annotate(*OPEN)
            return
        if self._exempt(attributes):
            return
        policy, errors = self._policy(where)
        if policy.is_privileged() and not errors:
            attributes.call.annotate(*OPEN)
            if row is not None and not self.configuration.usernames:
                self._open[where] = row.labels
            return
        assert attributes.object is not None
        spec: Json = attributes.object.get("spec") or {}
        if attributes.old is not None and not is_significant(
            spec, attributes.old.get("spec") or {}
        ):
            return
        self._judge(attributes, policy, errors, attributes.object["metadata"], spec, enforce=True)

    def _template(self, attributes: Attributes, path: tuple[str, ...]) -> None:
        if self._exempt(attributes):
            return
        policy, errors = self._policy(attributes.namespace)
        if policy.audit.level == policy.warn.level == PRIVILEGED and not errors:
            return
        template: Json | None = attributes.object
        for step in path:
            template = (template or {}).get(step)
        if template is not None:
            metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
            self._judge(attributes, policy, errors, metadata, spec, enforce=False)

    def _exempt(self, attributes: Attributes) -> bool:
        if attributes.namespace in self.configuration.namespaces:
            note(attributes, "exempt", "namespace")
        elif attributes.call.user.name in self.configuration.usernames:
            note(attributes, "exempt", "user")
        else:
            return False
        return True

    def _judge(
        self,
        attributes: Attributes,
        policy: Policy,
        errors: tuple[FieldError, ...],
        metadata: Json,
        spec: Json,
        *,
        enforce: bool,
    ) -> None:
        if spec.get("runtimeClassName") in self.configuration.runtime_classes:
            note(attributes, "exempt", "runtimeClass")
            return
        if errors:
            said = ", ".join(map(str, errors))
            note(
                attributes,
                "error",
                f"Failed to parse policy: {said if len(errors) == 1 else f'[{said}]'}",
            )
        known: dict[LevelVersion, list[Finding]] = {}

        def found(asked: LevelVersion) -> list[Finding]:
            if asked not in known:
                known[asked] = findings(asked, metadata, spec)
            return known[asked]

        if enforce:
            note(attributes, "enforce-policy", str(policy.enforce))
        if found(policy.audit):
            note(
                attributes,
                "audit-violations",
                f'would violate PodSecurity "{policy.audit}": {in_detail(found(policy.audit))}',
            )
        if enforce and found(policy.enforce):
            why = f'violates PodSecurity "{policy.enforce}": {in_detail(found(policy.enforce))}'
            raise forbidden(attributes.resource.kind, attributes.name, why)
        if found(policy.warn):
            attributes.call.warn(
                f'would violate PodSecurity "{policy.warn}": {in_detail(found(policy.warn))}'
            )

    # --- namespaces -------------------------------------------------------------------------------

    def _namespace(self, attributes: Attributes) -> None:
        """Labels must be right where they come or change; pods that a new policy would not let in
        are warned of."""
        assert attributes.object is not None
        labels: Mapping[str, str] = attributes.object["metadata"].get("labels") or {}
        before: Mapping[str, str] | None = None
        if attributes.old is not None:
            before = attributes.old["metadata"].get("labels") or {}
            if labels == before:
                return
        defaults = self.configuration.defaults
        policy, errors = policy_of(labels, defaults)
        past, past_errors = policy_of(before, defaults) if before is not None else (None, ())
        if errors and errors != past_errors:
            raise invalid(attributes.resource.kind, attributes.name, errors)
        if past is not None:
            new, old = policy.enforce, past.enforce
            if (
                new == old
                or new.level == PRIVILEGED
                or (new.version == old.version and not new.is_stricter(old))
            ):
                return
        if attributes.name in self.configuration.namespaces:
            self._warn_exempt(attributes, policy, labels)
        elif past is not None:
            for text in self._of_existing(attributes.name, policy.enforce):
                attributes.call.warn(text)

    def _warn_exempt(
        self, attributes: Attributes, policy: Policy, labels: Mapping[str, str]
    ) -> None:
        if policy.is_privileged() or policy.is_equivalent(self.configuration.defaults):
            return
        said = ", ".join(
            f"{mode}={asked}"
            for mode, asked in zip(MODES, policy, strict=True)
            if asked.level != PRIVILEGED
            and (PREFIX + mode in labels or f"{PREFIX}{mode}-version" in labels)
        )
        attributes.call.warn(
            f'namespace "{attributes.name}" is exempt from Pod Security, and the policy ({said}) will be ignored'
        )

    def _of_existing(self, namespace: str, enforce: LevelVersion) -> Iterator[str]:
        """What a policy has against the pods of a namespace, bounded by their number and by time.

        Those come first whose like was not there yet: one of each controller.
        """
        rows = list(accepted_in(self._pods, namespace))
        deadline = time.monotonic() + MOST_SECONDS
        names: dict[str, list[str]] = {}
        checked = exempt = 0
        for tree in one_of_each_first(rows):
            if checked >= MOST_PODS or time.monotonic() > deadline:
                break
            spec = tree.get("spec") or {}
            if spec.get("runtimeClassName") in self.configuration.runtime_classes:
                exempt += 1
                continue
            checked += 1
            found = findings(enforce, tree["metadata"], spec)
            if found:
                names.setdefault(in_short(found), []).append(tree["metadata"]["name"])
        total = len(rows) - exempt
        if checked < total:
            yield f"new PodSecurity enforce level only checked against the first {checked} of {total} existing pods"
        if names:
            yield f'existing pods in namespace "{namespace}" violate the new PodSecurity enforce level "{enforce}"'
        yield from sorted(
            f"{min(those)}{and_others(len(those) - 1)}: {why}" for why, those in names.items()
        )


def one_of_each_first(rows: list[Row]) -> Iterator[Json]:
    """The pods of these rows; those of a controller of which there was one already come last."""
    controllers, later = set[str](), []
    for row in rows:
        tree = row.tree()
        owners = tree["metadata"].get("ownerReferences") or ()
        controller = next((owner.get("uid") for owner in owners if owner.get("controller")), None)
        if controller in controllers:
            later.append(tree)
            continue
        if controller is not None:
            controllers.add(controller)
        yield tree
    yield from later


def and_others(count: int) -> str:
    if count == 0:
        return ""
    return " (and 1 other pod)" if count == 1 else f" (and {count} other pods)"


def is_significant(spec: Json, before: Json) -> bool:
    """Whether an update of a pod changes what the checks look at: of what may change, images and
    new containers."""
    for name in ("containers", "initContainers"):
        new, old = spec.get(name) or [], before.get(name) or []
        if len(new) != len(old) or any(
            one.get("image") != other.get("image") for one, other in zip(new, old, strict=True)
        ):
            return True
    known = {
        container.get("name"): container.get("image")
        for container in before.get("ephemeralContainers") or ()
    }
    added = spec.get("ephemeralContainers") or ()
    return any(
        container.get("name") not in known or known[container["name"]] != container.get("image")
        for container in added
    )


def note(attributes: Attributes, name: str, value: str) -> None:
    attributes.call.annotate(PREFIX + name, value)
