"""The default roles and bindings, whose names charts, clients and administrators rely on.

`admin`, `edit` and `view` aggregate the roles with their labels, so a chart that ships an
aggregated role extends all three. Reference: local-cluster 7.2.
"""

from __future__ import annotations

from hekla.api.trees import Json

RBAC = "rbac.authorization.k8s.io"
READ = ["get", "list", "watch"]
CHANGE = ["create", "delete", "deletecollection", "patch", "update"]
BOOTSTRAP_LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}
AUTOUPDATE_ANNOTATIONS = {"rbac.authorization.kubernetes.io/autoupdate": "true"}


def rule(groups: str, resources: str, verbs: list[str]) -> Json:
    """A rule from lists of words; the group `core` is the one with the empty name."""
    return {
        "apiGroups": ["" if group == "core" else group for group in groups.split()],
        "resources": resources.split(),
        "verbs": verbs,
    }


def role(name: str, rules: list[Json], *, gathers: str = "", into: str = "") -> Json:
    """A ClusterRole. `gathers` makes it aggregate the roles with that label value, `into` labels it
    to be aggregated."""
    labels = dict(BOOTSTRAP_LABELS)
    if into:
        labels[f"{RBAC}/aggregate-to-{into}"] = "true"
    tree: Json = {
        "metadata": {"name": name, "labels": labels, "annotations": dict(AUTOUPDATE_ANNOTATIONS)},
        "rules": rules or None,
    }
    if gathers:
        tree["aggregationRule"] = {
            "clusterRoleSelectors": [{"matchLabels": {f"{RBAC}/aggregate-to-{gathers}": "true"}}]
        }
    return tree


def subject(text: str) -> Json:
    """`group system:nodes`, `user system:kube-scheduler` or `account kube-system/name`."""
    kind, _, name = text.partition(" ")
    if kind == "account":
        namespace, _, name = name.partition("/")
        return {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    return {"apiGroup": RBAC, "kind": {"group": "Group", "user": "User"}[kind], "name": name}


def binding(role: str, *subjects: str) -> Json:
    """The ClusterRoleBinding that has the name of its role."""
    return {
        "metadata": {
            "name": role,
            "labels": dict(BOOTSTRAP_LABELS),
            "annotations": dict(AUTOUPDATE_ANNOTATIONS),
        },
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        **({"subjects": [subject(text) for text in subjects]} if subjects else {}),
    }


WORKLOADS = [
    (
        "core",
        "configmaps events persistentvolumeclaims replicationcontrollers replicationcontrollers/scale serviceaccounts services",
    ),
    (
        "apps",
        "daemonsets deployments deployments/scale replicasets replicasets/scale statefulsets statefulsets/scale",
    ),
    ("autoscaling", "horizontalpodautoscalers"),
    ("batch", "cronjobs jobs"),
    ("policy", "poddisruptionbudgets"),
    ("networking.k8s.io", "ingresses networkpolicies"),
    ("resource.k8s.io", "resourceclaims resourceclaimtemplates"),
]
STATUSES = [
    # read only: who writes them can redirect the connections of others
    ("core", "endpoints"),
    ("core", "pods pods/log pods/status replicationcontrollers/status services/status persistentvolumeclaims/status resourcequotas "
             "resourcequotas/status limitranges bindings namespaces namespaces/status"),
    ("apps", "controllerrevisions daemonsets/status deployments/status replicasets/status statefulsets/status"),
    ("autoscaling", "horizontalpodautoscalers/status"),
    ("batch", "cronjobs/status jobs/status"),
    ("policy", "poddisruptionbudgets/status"),
    ("networking.k8s.io", "ingresses/status"),
    ("resource.k8s.io", "resourceclaims/status"),
    ("discovery.k8s.io", "endpointslices"),
]  # fmt: skip
VIEW = [rule(groups, resources, READ) for groups, resources in [*WORKLOADS, *STATUSES]]
EDIT = [
    rule("core", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy", READ),
    rule("core", "serviceaccounts", ["impersonate"]),
    rule(
        "core",
        "pods pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy",
        CHANGE,
    ),
    rule("core", "pods/resize", ["patch", "update"]),
    rule("core", "pods/eviction serviceaccounts/token", ["create"]),
    rule("apps", "deployments/rollback", CHANGE),
    rule("coordination.k8s.io", "leases", [*CHANGE, *READ]),
    *(rule(groups, resources, CHANGE) for groups, resources in WORKLOADS),
]
ADMIN = [
    rule(RBAC, "roles rolebindings", [*CHANGE, *READ]),
    rule("authorization.k8s.io", "localsubjectaccessreviews", ["create"]),
]
PUBLIC = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
DISCOVERY = [
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
    "/version/",
]
ISSUER = [
    "/.well-known/openid-configuration",
    "/.well-known/openid-configuration/",
    "/openid/v1/jwks",
    "/openid/v1/jwks/",
]
NODE = [
    rule("authentication.k8s.io", "tokenreviews", ["create"]),
    rule("authorization.k8s.io", "subjectaccessreviews localsubjectaccessreviews", ["create"]),
    rule("core", "services", READ),
    rule("core", "nodes", ["create", *READ]),
    rule("core", "nodes/status", ["update", "patch"]),
    rule("core", "nodes", ["update", "patch"]),
    rule("core events.k8s.io", "events", ["create", "update", "patch"]),
    rule("core", "pods", READ),
    rule("core", "pods", ["create", "delete"]),
    rule("core", "pods/status", ["update", "patch"]),
    rule("core", "pods/eviction", ["create"]),
    rule("core", "secrets configmaps", READ),
    rule("core", "persistentvolumeclaims persistentvolumes", ["get"]),
    rule("core", "endpoints", ["get"]),
    rule("certificates.k8s.io", "certificatesigningrequests", ["create", *READ]),
    rule("coordination.k8s.io", "leases", ["get", "create", "update", "patch", "delete"]),
    rule("storage.k8s.io", "volumeattachments", ["get"]),
    rule("core", "serviceaccounts/token", ["create"]),
    rule("core", "persistentvolumeclaims/status", ["get", "update", "patch"]),
    rule("storage.k8s.io", "csidrivers", READ),
    rule("storage.k8s.io", "csinodes", ["get", "create", "update", "patch", "delete"]),
    rule("node.k8s.io", "runtimeclasses", READ),
    rule("resource.k8s.io", "resourceclaims", ["get"]),
    rule("resource.k8s.io", "resourceslices", ["deletecollection"]),
    rule("core", "serviceaccounts", ["get"]),
]
"""Bound to nobody: the node authorizer grants nodes the part of it that belongs to them
(`nodes.py`)."""
SCHEDULER = [
    rule("core events.k8s.io", "events", ["create", "patch", "update"]),
    rule("coordination.k8s.io", "leases", ["create", "get", "list", "update", "watch"]),
    rule("core", "nodes", READ), rule("core", "pods", ["delete", *READ]), rule("core", "bindings pods/binding", ["create"]),
    rule("core", "pods/status", ["patch", "update"]),
    rule("core", "replicationcontrollers services namespaces", READ), rule("apps", "replicasets statefulsets", READ),
    rule("policy", "poddisruptionbudgets", READ), rule("core", "persistentvolumeclaims persistentvolumes", [*READ, "patch", "update"]),
    rule("storage.k8s.io", "csinodes csidrivers csistoragecapacities volumeattachments storageclasses", READ),
    rule("resource.k8s.io", "deviceclasses resourceclaims resourceslices", READ),
    rule("resource.k8s.io", "resourceclaims resourceclaims/status", ["patch", "update"]),
    rule("authentication.k8s.io", "tokenreviews", ["create"]), rule("authorization.k8s.io", "subjectaccessreviews", ["create"]),
]  # fmt: skip
CONTROLLERS = [
    rule("core events.k8s.io", "events", ["create", "patch", "update"]),
    rule("coordination.k8s.io", "leases", ["create"]),
    {**rule("coordination.k8s.io", "leases", ["get", "update"]), "resourceNames": ["kube-controller-manager"]},
    rule("core", "secrets serviceaccounts", ["create", "get", "update"]), rule("core", "secrets", ["delete"]),
    rule("core", "namespaces configmaps", ["get"]), rule("core", "serviceaccounts/token", ["create"]),
    rule("authentication.k8s.io", "tokenreviews", ["create"]), rule("authorization.k8s.io", "subjectaccessreviews", ["create"]),
    rule("*", "*", ["list", "watch"]),
]  # fmt: skip
"""For Kubernetes' own controllers, which use an account for each; ours use the Unix socket with the
administrator's rights."""
EVERYTHING = [rule("*", "*", ["*"]), {"nonResourceURLs": ["*"], "verbs": ["*"]}]

CLUSTER_ROLES: list[Json] = [
    role("cluster-admin", EVERYTHING),
    role("admin", [], gathers="admin"),
    role("edit", [], gathers="edit", into="admin"),
    role("view", [], gathers="view", into="edit"),
    role("system:aggregate-to-admin", ADMIN, into="admin"),
    role("system:aggregate-to-edit", EDIT, into="edit"),
    role("system:aggregate-to-view", VIEW, into="view"),
    role("system:discovery", [{"nonResourceURLs": DISCOVERY, "verbs": ["get"]}]),
    role("system:public-info-viewer", [{"nonResourceURLs": PUBLIC, "verbs": ["get"]}]),
    role("system:service-account-issuer-discovery", [{"nonResourceURLs": ISSUER, "verbs": ["get"]}]),
    role("system:monitoring", [
        {"nonResourceURLs": ["/healthz", "/healthz/*", "/livez", "/livez/*", "/metrics", "/metrics/slis", "/readyz", "/readyz/*"],
         "verbs": ["get"]},
    ]),
    role("system:basic-user", [
        rule("authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews", ["create"]),
        rule("authentication.k8s.io", "selfsubjectreviews", ["create"]),
    ]),
    role("system:auth-delegator", [
        rule("authentication.k8s.io", "tokenreviews", ["create"]), rule("authorization.k8s.io", "subjectaccessreviews", ["create"]),
    ]),
    role("system:node", NODE),
    role("system:node-proxier", [
        rule("core", "services nodes", READ), rule("core events.k8s.io", "events", ["create", "patch", "update"]),
        rule("discovery.k8s.io", "endpointslices", READ), rule("networking.k8s.io", "servicecidrs", READ),
    ]),
    role("system:kube-scheduler", SCHEDULER),
    role("system:volume-scheduler", [
        rule("core", "persistentvolumes", [*READ, "patch", "update"]), rule("core", "persistentvolumeclaims", [*READ, "patch", "update"]),
        rule("storage.k8s.io", "storageclasses", READ),
    ]),
    role("system:kube-controller-manager", CONTROLLERS),
    role("system:persistent-volume-provisioner", [
        rule("core", "persistentvolumes", ["create", "delete", *READ]), rule("core", "persistentvolumeclaims", [*READ, "update"]),
        rule("storage.k8s.io", "storageclasses", READ), rule("core", "events", ["watch", "create", "patch", "update"]),
    ]),
    role("system:certificates.k8s.io:certificatesigningrequests:nodeclient", [
        rule("certificates.k8s.io", "certificatesigningrequests/nodeclient", ["create"]),
    ]),
]  # fmt: skip
CLUSTER_ROLE_BINDINGS: list[Json] = [
    binding("cluster-admin", "group system:masters"),
    binding("system:discovery", "group system:authenticated"),
    binding("system:basic-user", "group system:authenticated"),
    binding(
        "system:public-info-viewer", "group system:authenticated", "group system:unauthenticated"
    ),
    binding("system:service-account-issuer-discovery", "group system:serviceaccounts"),
    binding("system:monitoring", "group system:monitoring"),
    binding("system:node"),
    binding("system:node-proxier", "user system:kube-proxy"),
    binding("system:kube-scheduler", "user system:kube-scheduler"),
    binding("system:volume-scheduler", "user system:kube-scheduler"),
    binding("system:kube-controller-manager", "user system:kube-controller-manager"),
]
