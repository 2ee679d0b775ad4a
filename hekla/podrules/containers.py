"""Containers: names, images, ports, policies.  Probes, mounts, resources and security have modules
of their own."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hekla.api.text.fielderrors import forbidden
from hekla.api.text.fieldrules import Errors, Tree, named, one_of
from hekla.api.text.syntax import dns_label, port_name, port_number
from hekla.podrules import environment, mounts, probes, resources, security
from hekla.podrules.options import Options
from hekla.podrules.volumes import Volumes

PULL = ("Always", "IfNotPresent", "Never")
TERMINATION = ("File", "FallbackToLogsOnError")
PROTOCOLS = ("SCTP", "TCP", "UDP")
RESIZED = ("cpu", "memory")
RESIZING = ("NotRequired", "RestartContainer")
RESTART = ("Always", "Never", "OnFailure")
RULE_ACTIONS = ("Restart", "RestartAllContainers")
RULE_OPERATORS = ("In", "NotIn")
MOST_RULES, MOST_EXIT_CODES = 20, 255
INIT_ONLY = "may not be set for init containers without restartPolicy=Always"
NOT_EPHEMERAL = "cannot be set for an Ephemeral Container"
_ORDER_OF_HANDLERS = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
_NOT_EPHEMERAL = (
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
)


def check(spec: Tree, volumes: Volumes, path: str, options: Options, found: Errors) -> None:
    """Check all containers of a spec."""
    containers, seen = spec.get("containers") or (), set[str]()
    claims = dict.fromkeys(
        claim["name"] for claim in spec.get("resourceClaims") or () if claim.get("name")
    )
    if not containers:
        found.required(f"{path}.containers")
    for position, container in enumerate(containers):
        where = f"{path}.containers[{position}]"
        common(container, spec, volumes, claims, where, options, found)
        unique(container.get("name") or "", seen, f"{where}.name", found, unnamed=True)
        probes.handlers(container, spec, where, options, found)
        if options.features:
            if "restartPolicy" in container or "restartPolicyRules" in container:
                _restarts(container, where, found)
        elif container.get("restartPolicy") is not None:
            found.forbidden(f"{where}.restartPolicy", "may not be set for non-init containers")
    taken: set[str] = set()
    for position, container in enumerate(containers):
        if container.get("ports"):
            _on_host(container["ports"], taken, f"{path}.containers[{position}].ports", found)
    for position, container in enumerate(spec.get("initContainers") or ()):
        _init(
            container,
            spec,
            volumes,
            claims,
            seen,
            position,
            f"{path}.initContainers",
            options,
            found,
        )
    if spec.get("ephemeralContainers"):
        _ephemeral(spec, volumes, claims, seen, f"{path}.ephemeralContainers", options, found)


def common(
    container: Tree,
    spec: Tree,
    volumes: Volumes,
    claims: Collection[str],
    path: str,
    options: Options,
    found: Errors,
) -> None:
    """Check what holds for containers of every kind."""
    named(container.get("name"), dns_label, f"{path}.name", found)
    if not container.get("image"):
        found.required(f"{path}.image")
    if container.get("terminationMessagePolicy") not in TERMINATION:
        one_of(
            container.get("terminationMessagePolicy"),
            TERMINATION,
            f"{path}.terminationMessagePolicy",
            found,
        )
    if container.get("ports"):
        _ports(container["ports"], f"{path}.ports", found)
    if "env" in container or "envFrom" in container:
        environment.check(container, path, options, found)
    if "volumeMounts" in container or "volumeDevices" in container:
        mounts.check(container, volumes, path, found)
    if container.get("imagePullPolicy") not in PULL:
        one_of(container.get("imagePullPolicy"), PULL, f"{path}.imagePullPolicy", found)
    if container.get("resources"):
        resources.of_container(container["resources"], claims, f"{path}.resources", found)
    if container.get("resizePolicy"):
        _resizing(
            container["resizePolicy"], spec.get("restartPolicy"), f"{path}.resizePolicy", found
        )
    if container.get("securityContext"):
        security.container(
            container["securityContext"],
            f"{path}.securityContext",
            spec.get("hostUsers") is not False,
            found,
        )


def unique(name: str, seen: set[str], path: str, found: Errors, *, unnamed: bool = False) -> None:
    """`unnamed`: two entries without a name are duplicates too."""
    if name in seen and (name or unnamed):
        found.duplicate(path, name)
    seen.add(name)


def image(container: Tree, path: str, found: Errors) -> None:
    """Check the image; a template may have any."""
    text = container.get("image") or ""
    if text != text.strip():
        found.invalid(f"{path}.image", text, "must not have leading or trailing whitespace")


def _init(
    container: Tree,
    spec: Tree,
    volumes: Volumes,
    claims: Collection[str],
    seen: set[str],
    position: int,
    path: str,
    options: Options,
    found: Errors,
) -> None:
    """Check an init container: it ends before the others start, unless it is restartable."""
    where, restart = f"{path}[{position}]", container.get("restartPolicy")
    common(container, spec, volumes, claims, where, options, found)
    _restarts_of_init(container, where, options, found)
    name = container.get("name") or ""
    if name:
        unique(name, seen, f"{where}.name", found)
    elif "" in seen:
        found.duplicate(f"{where}.name", name)
    if container.get("ports"):
        # Kubernetes looks at each as if it were the only one.
        _on_host(container["ports"], set(), f"{path}[0].ports", found)
    if restart == "Always":
        probes.handlers(container, spec, where, options, found)
    else:
        found += [
            forbidden(f"{where}.{field}", INIT_ONLY)
            for field in _ORDER_OF_HANDLERS
            if container.get(field) is not None
        ]
    if container.get("resizePolicy"):
        _resizing_of_init(
            container["resizePolicy"], restart == "Always", f"{where}.resizePolicy", options, found
        )


def _resizing_of_init(
    policies: list[Tree], sidecar: bool, path: str, options: Options, found: Errors
) -> None:
    if not options.features:
        found.invalid(path, policies, "must not be set for init containers")
    for position, policy in enumerate(() if sidecar else policies):
        if policy.get("restartPolicy") == "RestartContainer":
            why = "must not be set to 'RestartContainer' for non-sidecar initContainers"
            found.invalid(f"{path}[{position}].restartPolicy", "RestartContainer", why)


def _ephemeral(
    spec: Tree,
    volumes: Volumes,
    claims: Collection[str],
    seen: set[str],
    path: str,
    options: Options,
    found: Errors,
) -> None:
    """Check ephemeral containers, which are added to a running pod to debug it."""
    others = {
        container.get("name") or ""
        for kind in ("containers", "initContainers")
        for container in spec.get(kind) or ()
    }
    for position, container in enumerate(spec["ephemeralContainers"]):
        where = f"{path}[{position}]"
        common(container, spec, volumes, claims, where, options, found)
        image(container, where, found)
        unique(container.get("name") or "", seen, f"{where}.name", found, unnamed=True)
        target = container.get("targetContainerName")
        if target and target not in others:
            found.not_found(f"{where}.targetContainerName", target)
        found += [
            forbidden(f"{where}.{field}", NOT_EPHEMERAL)
            for field in _NOT_EPHEMERAL
            if container.get(field) not in (None, [], {})
        ]
        for index, mount in enumerate(container.get("volumeMounts") or ()):
            for field in ("subPath", "subPathExpr"):
                if mount.get(field):
                    found.forbidden(f"{where}.volumeMounts[{index}].{field}", NOT_EPHEMERAL)


def _ports(ports: list[Tree], path: str, found: Errors) -> None:
    names: set[str] = set()
    for position, port in enumerate(ports):
        where, name = f"{path}[{position}]", port.get("name")
        if name:
            reasons = port_name(name)
            found.malformed(f"{where}.name", name, reasons)
            if not reasons:
                unique(name, names, f"{where}.name", found)
        number, on_host = port.get("containerPort") or 0, port.get("hostPort") or 0
        if not number:
            found.required(f"{where}.containerPort")
        else:
            found.malformed(f"{where}.containerPort", number, port_number(number))
        if on_host:
            found.malformed(f"{where}.hostPort", on_host, port_number(on_host))
        one_of(port.get("protocol"), PROTOCOLS, f"{where}.protocol", found)


def _on_host(ports: list[Tree], taken: set[str], path: str, found: Errors) -> None:
    """Check that no two containers use the same host port."""
    for position, port in enumerate(ports):
        if port.get("hostPort"):
            key = f"{port.get('protocol') or 'TCP'}/{port.get('hostIP') or ''}/{port['hostPort']}"
            unique(key, taken, f"{path}[{position}].hostPort", found)


def _resizing(policies: list[Tree], restart: Any, path: str, found: Errors) -> None:
    seen: set[str] = set()
    for position, policy in enumerate(policies):
        resource, way = policy.get("resourceName") or "", policy.get("restartPolicy") or ""
        unique(resource, seen, f"{path}[{position}]", found, unnamed=True)
        one_of(resource, RESIZED, path, found, needed=True)
        one_of(way, RESIZING, path, found, needed=True)
        if restart == "Never" and way != "NotRequired":
            found.invalid(path, way, "must be 'NotRequired' when pod `restartPolicy` is 'Never'")


def _restarts(container: Tree, path: str, found: Errors) -> None:
    """Check the restart policy and rules of a single container."""
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or ()
    if policy is None and rules:
        found.required(
            f"{path}.restartPolicy", "must specify restartPolicy when restart rules are used"
        )
    elif policy is not None and policy not in RESTART:
        found.not_supported(f"{path}.restartPolicy", policy, RESTART)
    if len(rules) > MOST_RULES:
        found.too_many(f"{path}.restartPolicyRules", len(rules), MOST_RULES)
    for position, rule in enumerate(rules):
        where, codes = f"{path}.restartPolicyRules[{position}]", rule.get("exitCodes")
        one_of(rule.get("action"), RULE_ACTIONS, f"{where}.action", found, known=True)
        if codes is None:
            found.required(f"{where}.exitCodes", "must be specified")
            continue
        one_of(
            codes.get("operator"), RULE_OPERATORS, f"{where}.exitCodes.operator", found, known=True
        )
        if len(codes.get("values") or ()) > MOST_EXIT_CODES:
            found.too_many(f"{where}.exitCodes.values", len(codes["values"]), MOST_EXIT_CODES)


def _restarts_of_init(container: Tree, path: str, options: Options, found: Errors) -> None:
    policy = container.get("restartPolicy")
    if policy is None:
        if container.get("restartPolicyRules"):
            found.required(
                f"{path}.restartPolicy", "must specify restartPolicy when restart rules are used"
            )
    elif options.features:
        _restarts(container, path, found)
    elif policy != "Always":
        found.not_supported(f"{path}.restartPolicy", policy, ("Always",))
