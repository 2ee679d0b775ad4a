"""The checks of the level baseline, which prevents known privilege escalations."""

from __future__ import annotations

from hekla.api.text.fieldrules import Tree
from hekla.api.text.quoting import quoted
from hekla.podrules.podsecurity.finding import (
    Check,
    Finding,
    containers,
    context_of,
    in_quotes,
    name_of,
    named,
    plural,
    setters,
    use,
)
from hekla.podrules.profiles import APP_ARMOR, DEFAULTS, LOCAL, SECCOMP, SECCOMP_POD

CAPABILITIES = frozenset(
    {
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    }
)
"""What container engines leave a container by themselves."""
CONFINED = ("RuntimeDefault", "Localhost")
"""Types of a profile that confines."""
SELINUX = frozenset({"", "container_t", "container_init_t", "container_kvm_t"})
SELINUX_31 = SELINUX | {"container_engine_t"}
SYSCTLS = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range",
        "net.ipv4.ip_unprivileged_port_start",
    }
)
"""Parameters of the kernel that a pod has for itself, and that harm nobody."""
SYSCTLS_27 = SYSCTLS | {"net.ipv4.ip_local_reserved_ports"}
SYSCTLS_29 = SYSCTLS_27 | {
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
}
SYSCTLS_32 = SYSCTLS_29 | {"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"}
HOST_NAMESPACES = ("hostNetwork", "hostPID", "hostIPC")
PROBES, HOOKS = ("livenessProbe", "readinessProbe", "startupProbe"), ("postStart", "preStop")


def app_armor(metadata: Tree, spec: Tree) -> Finding | None:
    who, types = _unconfined(spec, "appArmorProfile")
    said = sorted(
        f"{key}={quoted(value)}"
        for key, value in (metadata.get("annotations") or {}).items()
        if key.startswith(APP_ARMOR)
        and value not in ("", DEFAULTS[0])
        and not value.startswith(LOCAL)
    )
    values = types + said
    if not values:
        return None
    if said:
        who = " and ".join(part for part in (who, plural("annotation", said)) if part)
    return Finding(
        plural("forbidden AppArmor profile", values),
        f"{who} must not set AppArmor profile type to {in_quotes(values)}",
    )


def capabilities(metadata: Tree, spec: Tree) -> Finding | None:
    bad, found = [], set[str]()
    for container in containers(spec):
        more = {
            name
            for name in (context_of(container).get("capabilities") or {}).get("add") or ()
            if name not in CAPABILITIES
        }
        if more:
            bad.append(name_of(container))
            found |= more
    if not bad:
        return None
    detail = f"{named('container', bad)} must not include {in_quotes(sorted(found))} in securityContext.capabilities.add"
    return Finding("non-default capabilities", detail)


def host_namespaces(metadata: Tree, spec: Tree) -> Finding | None:
    shared = [f"{name}=true" for name in HOST_NAMESPACES if spec.get(name)]
    return Finding("host namespaces", ", ".join(shared)) if shared else None


def host_paths(metadata: Tree, spec: Tree) -> Finding | None:
    bad = [
        name_of(volume)
        for volume in spec.get("volumes") or ()
        if volume.get("hostPath") is not None
    ]
    return Finding("hostPath volumes", named("volume", bad)) if bad else None


def host_ports(metadata: Tree, spec: Tree) -> Finding | None:
    bad, found = [], set[str]()
    for container in containers(spec):
        ports = {
            str(port["hostPort"]) for port in container.get("ports") or () if port.get("hostPort")
        }
        if ports:
            bad.append(name_of(container))
            found |= ports
    if not bad:
        return None
    return Finding(
        "hostPort",
        f"{named('container', bad)} {use(bad)} {plural('hostPort', found)} {', '.join(sorted(found))}",
    )


def probed_hosts(metadata: Tree, spec: Tree) -> Finding | None:
    """Probes and hooks may not name a host: the node would connect to any address."""
    bad, found = set[str](), set[str]()
    for container in containers(spec):
        lifecycle = container.get("lifecycle") or {}
        for action in (
            *(container.get(probe) for probe in PROBES),
            *(lifecycle.get(hook) for hook in HOOKS),
        ):
            for way in ("httpGet", "tcpSocket"):
                host = ((action or {}).get(way) or {}).get("host")
                if host:
                    bad.add(name_of(container))
                    found.add(host)
    if not bad:
        return None
    what = "probe or lifecycle host"
    return Finding(
        what,
        f"{named('container', sorted(bad))} {use(bad)} {plural(what, found)} {in_quotes(sorted(found))}",
    )


def privileged(metadata: Tree, spec: Tree) -> Finding | None:
    bad = [
        name_of(container)
        for container in containers(spec)
        if context_of(container).get("privileged")
    ]
    return (
        Finding(
            "privileged", f"{named('container', bad)} must not set securityContext.privileged=true"
        )
        if bad
        else None
    )


def proc_mount(metadata: Tree, spec: Tree) -> Finding | None:
    kinds = [(name_of(one), context_of(one).get("procMount")) for one in containers(spec)]
    bad = [(name, kind) for name, kind in kinds if kind is not None and kind != "Default"]
    if not bad:
        return None
    values = in_quotes(sorted({kind for _, kind in bad}))
    return Finding(
        "procMount",
        f"{named('container', [name for name, _ in bad])} must not set securityContext.procMount to {values}",
    )


def unless_own_users(check: Check) -> Check:
    """The check for pods without a user namespace; inside one, root has no rights on the node."""

    def relaxed(metadata: Tree, spec: Tree) -> Finding | None:
        return None if spec.get("hostUsers") is False else check(metadata, spec)

    return relaxed


def selinux(allowed: frozenset[str]) -> Check:
    def check(metadata: Tree, spec: Tree) -> Finding | None:
        def wrong(thing: Tree) -> bool:
            options = context_of(thing).get("seLinuxOptions")
            if options is None:
                return False
            kind, user, role = (options.get(name) or "" for name in ("type", "user", "role"))
            kinds.update({kind} - allowed)
            barred.update(name for name, value in (("user", user), ("role", role)) if value)
            return kind not in allowed or bool(user or role)

        kinds, barred = set[str](), set[str]()
        pod = wrong(spec)
        bad = [name_of(container) for container in containers(spec) if wrong(container)]
        if not pod and not bad:
            return None
        what = [f"{plural('type', kinds)} {in_quotes(sorted(kinds))}"] if kinds else []
        what += [f"{name} may not be set" for name in ("user", "role") if name in barred]
        return Finding(
            "seLinuxOptions",
            f"{setters(pod, bad)} set forbidden securityContext.seLinuxOptions: {'; '.join(what)}",
        )

    return check


def seccomp_annotations(metadata: Tree, spec: Tree) -> Finding | None:
    """Seccomp profiles in annotations, from before there was a field."""
    given = metadata.get("annotations") or {}
    keys = [SECCOMP_POD, *(SECCOMP + name_of(container) for container in containers(spec))]
    bad = sorted(
        {
            f"{key}={quoted(given[key])}"
            for key in keys
            if key in given and given[key] not in DEFAULTS and not given[key].startswith(LOCAL)
        }
    )
    return (
        Finding("seccompProfile", f"forbidden {plural('annotation', bad)} {', '.join(bad)}")
        if bad
        else None
    )


def seccomp(metadata: Tree, spec: Tree) -> Finding | None:
    who, types = _unconfined(spec, "seccompProfile")
    if not types:
        return None
    return Finding(
        "seccompProfile",
        f"{who} must not set securityContext.seccompProfile.type to {in_quotes(types)}",
    )


def _unconfined(spec: Tree, field: str) -> tuple[str, list[str]]:
    """Who sets a profile that does not confine, and the types that they set."""

    def wrong(thing: Tree) -> str | None:
        profile = context_of(thing).get(field)
        return (
            None
            if profile is None or profile.get("type") in CONFINED
            else profile.get("type") or ""
        )

    pod = wrong(spec)
    bad = [(name_of(one), kind) for one in containers(spec) if (kind := wrong(one)) is not None]
    types = {kind for _, kind in bad} | ({pod} if pod is not None else set())
    return setters(pod is not None, [name for name, _ in bad]), sorted(types)


def sysctls(allowed: frozenset[str]) -> Check:
    def check(metadata: Tree, spec: Tree) -> Finding | None:
        entries = context_of(spec).get("sysctls") or ()
        bad = [
            entry.get("name") or "" for entry in entries if (entry.get("name") or "") not in allowed
        ]
        return Finding("forbidden sysctls", ", ".join(bad)) if bad else None

    return check


def host_process(metadata: Tree, spec: Tree) -> Finding | None:
    def wrong(thing: Tree) -> bool:
        return bool((context_of(thing).get("windowsOptions") or {}).get("hostProcess"))

    pod = wrong(spec)
    bad = [name_of(container) for container in containers(spec) if wrong(container)]
    if not pod and not bad:
        return None
    return Finding(
        "hostProcess",
        f"{setters(pod, bad)} must not set securityContext.windowsOptions.hostProcess=true",
    )
