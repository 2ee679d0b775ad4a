"""The rules of admission that a cluster can keep by itself: ValidatingAdmissionPolicies and
MutatingAdmissionPolicies.

`hekla policies` prints them.  They ask for no server of ours: what is refused is refused while
every pod of Hekla is away.  They are weaker than the webhooks where a rule has to know other
objects (queues and their tree), walk a graph to its end (cycles of dependencies), or know the whole
of a pod.  Names and texts are those of the reference (api-and-admission 5.5, 5.6); where it leaves
a rule out that CEL can express, or refuses what the webhook lets in, these follow the webhook
(decision 0190).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hekla.admission.review import BOTH_TIERS
from hekla.admission.rules.jobs import PLUGINS
from hekla.admission.rules.jobupdates import IMMUTABLE
from hekla.api.bus import Action, Event
from hekla.api.names import HIERARCHY, HIERARCHY_WEIGHTS, JDB_MAX_UNAVAILABLE, JDB_MIN_AVAILABLE

Tree = dict[str, Any]
GROUP = "admissionregistration.k8s.io/v1"


class Policy(NamedTuple):
    """One policy: `resource` is (group, version, plural), `rules` are (expression, message),
    `variables` (name, expression)."""

    name: str
    resource: tuple[str, str, str]
    operations: tuple[str, ...]
    rules: tuple[tuple[str, str], ...]
    variables: tuple[tuple[str, str], ...] = ()
    conditions: tuple[tuple[str, str], ...] = ()


def _words(*words: str) -> str:
    return "[" + ", ".join(f"'{word}'" for word in words) + "]"


_EVENTS = _words(
    Event.ANY,
    Event.POD_FAILED,
    Event.POD_EVICTED,
    Event.POD_PENDING,
    Event.JOB_UNKNOWN,
    Event.TASK_COMPLETED,
    Event.TASK_FAILED,
    "JobUpdated",
)
_ACTIONS = _words(
    Action.ABORT_JOB,
    Action.RESTART_JOB,
    Action.RESTART_TASK,
    Action.RESTART_POD,
    Action.RESTART_PARTITION,
    Action.TERMINATE_JOB,
    Action.COMPLETE_JOB,
    Action.RESUME_JOB,
)
_JOB = ("batch.volcano.sh", "v1alpha1", "jobs")
_EVENTS_OF = "(has(p.event) && p.event != '' ? [p.event] : []) + p.?events.orValue([])"


def _lifecycle(policies: str) -> tuple[tuple[str, str], ...]:
    """The rules of lifecycle policies.  `policies` is an expression for a list of such lists."""
    events = f"l.map(p, {_EVENTS_OF})"
    given = f"size({_EVENTS_OF}) > 0"
    return tuple(
        (f"!variables.created || {policies}.all(l, {expression})", message)
        for expression, message in (
            (
                f"l.all(p, !({given} && has(p.exitCode)))",
                "must not specify event and exitCode simultaneously",
            ),
            (
                f"l.all(p, {given} || has(p.exitCode))",
                "either event and exitCode should be specified",
            ),
            (f"{events}.all(es, es.all(e, e in {_EVENTS}))", "invalid policy event"),
            (
                f"l.all(p, !({given}) || p.?action.orValue('') in {_ACTIONS})",
                "invalid policy action",
            ),
            ("l.all(p, !has(p.exitCode) || p.exitCode != 0)", "0 is not a valid error code"),
            (
                f"l.all(p, l.filter(q, ({_EVENTS_OF.replace('p.', 'q.')}).exists(e, e in ({_EVENTS_OF}))).size() <= 1)",
                "duplicate policy event found",
            ),
            (
                "l.filter(p, has(p.exitCode)).all(p, l.exists_one(q, has(q.exitCode) && q.exitCode == p.exitCode))",
                "duplicate exitCode found",
            ),
            (
                f"!{events}.exists(es, '*' in es) || {events}.all(es, es.all(e, e == '*'))",
                "if there's * here, no other policy should be here",
            ),
        )
    )


def _same(name: str, default: str) -> str:
    return f"object.spec.?{name}.orValue({default}) == oldObject.spec.?{name}.orValue({default})"


_TASK_MINIMUM = "(has(t.minAvailable) ? t.minAvailable : t.?replicas.orValue(0))"
_SIZES = (
    "object.spec.?minAvailable.orValue(0) <= variables.tasks.map(t, t.?replicas.orValue(0)).sum()"
)
_TIERS = "!(has({0}) && has({0}.highestTierAllowed) && {0}.?highestTierName.orValue('') != '')"
_PARTITIONS = (
    "{0}.all(t, !has(t.partitionPolicy) || t.?replicas.orValue(0) == "
    "t.partitionPolicy.totalPartitions * t.partitionPolicy.partitionSize)"
)
_NAMED = "size({0}) <= 63 && {0}.matches('^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$')"

JOBS = Policy(
    "job-validation-policy",
    _JOB,
    ("CREATE", "UPDATE"),
    (
        ("!variables.created || size(variables.tasks) > 0", "No task specified in job spec"),
        ("object.spec.?minAvailable.orValue(0) >= 0", "job 'minAvailable' must be >= 0"),
        ("object.spec.?maxRetry.orValue(0) >= 0", "'maxRetry' cannot be less than zero"),
        (
            "object.spec.?ttlSecondsAfterFinished.orValue(0) >= 0",
            "'ttlSecondsAfterFinished' cannot be less than zero",
        ),
        (
            "!variables.created || variables.names.all(n, variables.names.exists_one(m, m == n))",
            "duplicated task name found",
        ),
        (
            "!variables.created || variables.names.all(n, size(n) <= 63 && n.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'))",
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters",
        ),
        ("variables.tasks.all(t, t.?replicas.orValue(0) >= 0)", "'replicas' < 0 in task"),
        ("variables.tasks.all(t, t.?minAvailable.orValue(0) >= 0)", "'minAvailable' < 0 in task"),
        (
            f"variables.tasks.all(t, {_TASK_MINIMUM} <= t.?replicas.orValue(0))",
            "'minAvailable' is greater than 'replicas' in task",
        ),
        (
            f"!variables.created || {_SIZES}",
            "job 'minAvailable' should not be greater than total replicas in tasks",
        ),
        *_lifecycle(
            "([object.spec.?policies.orValue([])] + variables.tasks.map(t, t.?policies.orValue([])))"
        ),
        (
            "!variables.created || variables.volumes.all(v, v.?mountPath.orValue('') != '')",
            "mountPath is required",
        ),
        (
            "!variables.created || variables.volumes.all(v, variables.volumes.exists_one(w, w.?mountPath == v.?mountPath))",
            "duplicated mountPath found",
        ),
        (
            "!variables.created || variables.volumes.all(v, has(v.volumeClaim) || v.?volumeClaimName.orValue('') != '')",
            "either VolumeClaim or VolumeClaimName must be specified",
        ),
        (
            "!variables.created || variables.volumes.all(v, !has(v.volumeClaim) || v.?volumeClaimName.orValue('') == '')",
            "conflict: If you want to use an existing PVC, just specify VolumeClaimName.",
        ),
        (
            f"object.spec.?plugins.orValue({{}}).all(p, p in {_words(*sorted(PLUGINS))})",
            "unable to find job plugin",
        ),
        (_TIERS.format("object.spec.networkTopology"), BOTH_TIERS),
        (
            f"variables.tasks.all(t, !has(t.partitionPolicy) || {_TIERS.format('t.partitionPolicy.networkTopology')})",
            BOTH_TIERS,
        ),
        (
            _PARTITIONS.format("variables.tasks"),
            "'Replicas' are not equal to TotalPartitions*PartitionSize in task",
        ),
        (
            "variables.tasks.all(t, !has(t.partitionPolicy) || t.partitionPolicy.?minPartitions.orValue(0) == 0 || !has(t.minAvailable) || "
            "t.partitionPolicy.minPartitions * t.partitionPolicy.partitionSize == t.minAvailable)",
            "'MinAvailable' is not equal to MinPartitions*PartitionSize in task",
        ),
        (
            "!variables.created || variables.tasks.all(t, !has(t.dependsOn) || t.dependsOn.?name.orValue([]).all(d, "
            "d in variables.names && d != t.?name.orValue('') && t.dependsOn.name.exists_one(o, o == d)))",
            "job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG)",
        ),
        (
            f"!variables.created || ({_NAMED.format('object.metadata.name')})",
            "job name errors: it has to be a qualified name",
        ),
        (
            "!variables.created || variables.names.all(n, size(object.metadata.name + '-' + n) <= 61)",
            "create pod with name validate failed: it is longer than 63 characters",
        ),
        (
            "variables.created || size(variables.tasks) == size(variables.before)",
            "job updates may not add or remove tasks",
        ),
        (
            f"variables.created || {_SIZES}",
            "job 'minAvailable' must not be greater than total replicas",
        ),
        (
            "variables.created || ("
            + " && ".join(
                _same(name, default)
                for name, default in (
                    ("queue", "'default'"),
                    ("schedulerName", "'volcano'"),
                    ("maxRetry", "3"),
                    ("policies", "[]"),
                    ("ttlSecondsAfterFinished", "-1"),
                    ("minSuccess", "-1"),
                    ("runningEstimate", "''"),
                )
            )
            + ")",
            IMMUTABLE,
        ),
        (
            "variables.created || size(variables.tasks) != size(variables.before) || lists.range(size(variables.tasks)).all(i, "
            "variables.before[i].?name.orValue('') == variables.tasks[i].?name.orValue(variables.before[i].?name.orValue('')) && "
            + " && ".join(
                f"variables.before[i].?{name}.orValue({default}) == variables.tasks[i].?{name}.orValue({default})"
                for name, default in (
                    ("policies", "[]"),
                    ("maxRetry", "3"),
                    ("topologyPolicy", "''"),
                )
            )
            + " && variables.before[i].template.?spec.?containers.orValue([]).map(c, [c.?name.orValue(''), c.?image.orValue('')]) == "
            "variables.tasks[i].template.?spec.?containers.orValue([]).map(c, [c.?name.orValue(''), c.?image.orValue('')]))",
            IMMUTABLE,
        ),
    ),
    variables=(
        ("created", "request.operation == 'CREATE'"),
        ("tasks", "object.spec.?tasks.orValue([])"),
        ("before", "request.operation == 'CREATE' ? [] : oldObject.spec.?tasks.orValue([])"),
        (
            "names",
            "lists.range(size(variables.tasks)).map(i, "
            "variables.tasks[i].?name.orValue('') == '' ? 'default' + string(i) : variables.tasks[i].name)",
        ),
        ("volumes", "object.spec.?volumes.orValue([])"),
    ),
)

_AMOUNT = "quantity(string({0}))"
_STILL = "request.operation == 'DELETE' || "

QUEUES = Policy(
    "queue-validation-policy",
    ("scheduling.volcano.sh", "v1beta1", "queues"),
    ("CREATE", "UPDATE", "DELETE"),
    (
        (
            _STILL + "object.?status.?state.orValue('') in ['', 'Open', 'Closed']",
            "queue state must be in [Open, Closed]",
        ),
        *(
            (
                _STILL
                + f"variables.{field}.all(r, {_AMOUNT.format(f'variables.{field}[r]')}.compareTo(quantity('0')) >= 0)",
                f"{field}: must be greater than or equal to 0",
            )
            for field in ("capability", "deserved", "guarantee")
        ),
        (
            _STILL + "variables.deserved.all(r, !(r in variables.capability) || "
            f"{_AMOUNT.format('variables.deserved[r]')}.compareTo({_AMOUNT.format('variables.capability[r]')}) <= 0)",
            "must be <= capability",
        ),
        (
            _STILL + "variables.guarantee.all(r, r in variables.deserved && "
            f"{_AMOUNT.format('variables.deserved[r]')}.compareTo({_AMOUNT.format('variables.guarantee[r]')}) >= 0)",
            "must be >= guarantee",
        ),
        (
            _STILL + "(variables.hierarchy == '' && variables.weights == '') || "
            "size(variables.hierarchy.split('/')) == size(variables.weights.split('/'))",
            f"{HIERARCHY} must have the same length with {HIERARCHY_WEIGHTS}",
        ),
        (
            _STILL
            + "(variables.hierarchy == '' && variables.weights == '') || variables.weights.split('/').all(w, "
            "w.matches('^[0-9]+([.][0-9]+)?$') && double(w) > 0.0)",
            f"weights in {HIERARCHY_WEIGHTS} must be larger than 0",
        ),
        (
            "request.operation == 'DELETE' || object.?spec.?parent.orValue('') != object.metadata.name",
            "queue cannot use itself as parent",
        ),
        (
            "request.operation != 'DELETE' || oldObject.metadata.name != 'default'",
            "`default` queue can not be deleted",
        ),
        (
            "request.operation != 'DELETE' || oldObject.metadata.name != 'root'",
            "`root` queue can not be deleted",
        ),
    ),
    variables=(
        ("capability", "request.operation == 'DELETE' ? {} : object.?spec.?capability.orValue({})"),
        ("deserved", "request.operation == 'DELETE' ? {} : object.?spec.?deserved.orValue({})"),
        (
            "guarantee",
            "request.operation == 'DELETE' ? {} : object.?spec.?guarantee.?resource.orValue({})",
        ),
        (
            "hierarchy",
            f"request.operation == 'DELETE' ? '' : object.metadata.?annotations['{HIERARCHY}'].orValue('')",
        ),
        (
            "weights",
            f"request.operation == 'DELETE' ? '' : object.metadata.?annotations['{HIERARCHY_WEIGHTS}'].orValue('')",
        ),
    ),
)

POD_GROUPS = Policy(
    "podgroup-validation-policy",
    ("scheduling.volcano.sh", "v1beta1", "podgroups"),
    ("CREATE",),
    (
        (_TIERS.format("object.spec.networkTopology"), BOTH_TIERS + "."),
        (
            f"object.?spec.?subGroupPolicy.orValue([]).all(p, {_TIERS.format('p.networkTopology')})",
            BOTH_TIERS + ".",
        ),
    ),
)


def _budget(key: str) -> tuple[str, str]:
    value = f"object.metadata.annotations['{key}']"
    return (
        f"!('{key}' in object.metadata.annotations) || {value}.matches('^[+]?0*[1-9][0-9]{{0,8}}$') || {value}.matches('^0*[1-9][0-9]?%$')",
        f"{key.removeprefix('volcano.sh/')} must be a positive integer or a valid percentage which between 1% ~ 99%",
    )


PODS = Policy(
    "pod-validation-policy",
    ("", "v1", "pods"),
    ("CREATE",),
    (
        (
            f"!('{JDB_MIN_AVAILABLE}' in object.metadata.annotations && '{JDB_MAX_UNAVAILABLE}' in object.metadata.annotations)",
            "not allow configure multiple annotations at same time",
        ),
        _budget(JDB_MIN_AVAILABLE),
        _budget(JDB_MAX_UNAVAILABLE),
    ),
    conditions=(
        (
            "batch-scheduler",
            "has(object.spec.schedulerName) && object.spec.schedulerName == 'volcano'",
        ),
        ("annotated", "has(object.metadata.annotations)"),
    ),
)

_SELECTORS = ("exactMatch", "regexMatch", "labelMatch")
_CHOSEN = " + ".join(f"(has(m.selector.{each}) ? 1 : 0)" for each in _SELECTORS)

_ESCAPE = "\\\\"
"""A backslash, as a text of CEL spells it."""

HYPER_NODES = Policy(
    "hypernode-validation-policy",
    ("topology.volcano.sh", "v1alpha1", "hypernodes"),
    ("CREATE", "UPDATE"),
    (
        ("size(variables.members) > 0", "member must have at least one member"),
        (
            f"variables.members.all(m, !has(m.selector) || {_CHOSEN} >= 1)",
            "member selector must have one of exactMatch, regexMatch, or labelMatch",
        ),
        (
            f"variables.members.all(m, !has(m.selector) || {_CHOSEN} <= 1)",
            "cannot specify more than one selector type (exactMatch, regexMatch, labelMatch)",
        ),
        *(
            (
                f"variables.patterns.all(p, size(p.replace('{_ESCAPE}{a}', '').split('{a}')) == "
                f"size(p.replace('{_ESCAPE}{b}', '').split('{b}')))",
                f"member regexMatch pattern is invalid: unmatched {name}",
            )
            for a, b, name in (
                ("(", ")", "parentheses"),
                ("[", "]", "square brackets"),
                ("{", "}", "curly braces"),
            )
        ),
    ),
    variables=(
        ("members", "object.?spec.?members.orValue([])"),
        (
            "patterns",
            "variables.members.filter(m, has(m.selector) && has(m.selector.regexMatch))"
            ".map(m, m.selector.regexMatch.?pattern.orValue(''))",
        ),
    ),
)

JOB_FLOWS = Policy(
    "jobflow-validation-policy",
    ("flow.volcano.sh", "v1alpha1", "jobflows"),
    ("CREATE", "UPDATE"),
    (
        (
            "variables.flows.all(f, f.?dependsOn.?targets.orValue([]).all(t, variables.flows.exists(o, o.name == t)))",
            "jobflow Flow is not DAG: vertex is not defined",
        ),
        (
            "variables.flows.all(f, !(f.name in f.?dependsOn.?targets.orValue([])))",
            "jobflow Flow is not DAG",
        ),
        (
            "variables.flows.all(f, !f.?dependsOn.?targets.orValue([]).exists(t, variables.flows.exists(o, o.name == t && "
            "f.name in o.?dependsOn.?targets.orValue([]))))",
            "jobflow Flow is not DAG",
        ),
    ),
    variables=(("flows", "object.?spec.?flows.orValue([])"),),
)

CRON_JOBS = Policy(
    "cronjob-validation-policy",
    ("batch.volcano.sh", "v1alpha1", "cronjobs"),
    ("CREATE", "UPDATE"),
    (
        ("object.?spec.?schedule.orValue('') != ''", "schedule is required, but got empty"),
        (
            "!object.?spec.?schedule.orValue('').contains('TZ')",
            "schedule should not contain TZ or CRON_TZ, TZ should only be set in the timeZone field",
        ),
        (
            "object.?spec.?schedule.orValue('') == '' || object.spec.schedule.startsWith('@') || "
            "size(object.spec.schedule.trim().split(' ').filter(part, part != '')) == 5",
            "schedule is not a valid cron expression",
        ),
        (
            "object.?spec.?timeZone.orValue('UTC') != ''",
            "timeZone must be nil or non-empty string, got empty string",
        ),
        (
            "object.?spec.?timeZone.orValue('UTC').lowerAscii() != 'local'",
            "timeZone can't be Local, and must be defined in https://www.iana.org/time-zones",
        ),
        (
            "size(object.metadata.name) <= 52",
            "cronJob name must be no more than 52 characters to accommodate job name suffix (max 63 total)",
        ),
    ),
)

VALIDATING = (JOBS, QUEUES, POD_GROUPS, PODS, HYPER_NODES, JOB_FLOWS, CRON_JOBS)


def objects() -> list[Tree]:
    """All policies and their bindings, ready to be applied."""
    return [tree for policy in VALIDATING for tree in validating(policy)] + [
        tree for name in MUTATING for tree in mutating(name)
    ]


def validating(policy: Policy) -> list[Tree]:
    """A validating policy and its binding."""
    spec: Tree = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [_rule(policy.resource, policy.operations)],
        },
        "variables": [
            {"name": name, "expression": expression} for name, expression in policy.variables
        ],
        "matchConditions": [
            {"name": name, "expression": expression} for name, expression in policy.conditions
        ],
        "validations": [
            {"expression": expression, "message": message, "reason": "Invalid"}
            for expression, message in policy.rules
        ],
    }
    return [
        _object(
            "ValidatingAdmissionPolicy",
            policy.name,
            {key: value for key, value in spec.items() if value},
        ),
        _object(
            "ValidatingAdmissionPolicyBinding",
            f"{policy.name}-binding",
            {"policyName": policy.name, "validationActions": ["Deny"]},
        ),
    ]


# -- what is filled in -----------------------------------------------------------------------------

_ADD = "JSONPatch{{op: 'add', path: {0}, value: {1}}}"
_EMPTY: str = "[]"


def _when(condition: str, path: str, value: str) -> str:
    return f"({condition} ? [{_ADD.format(path, value)}] : [])"


def _tasks(condition: str, field: str, value: str) -> str:
    """A patch for each task `t`, of index `i`, that fulfils a condition."""
    return (
        f"variables.tasks.transformList(i, t, {condition}, "
        + _ADD.format(f"'/spec/tasks/' + string(i) + '/{field}'", value)
        + ")"
    )


_LEAST = (
    "(t.?partitionPolicy.?minPartitions.orValue(0) > 0 ? t.partitionPolicy.minPartitions * t.partitionPolicy.partitionSize : "
    "t.?replicas.orValue(0))"
)
_NEEDS_SVC = " || ".join(
    f"'{name}' in object.spec.plugins" for name in ("tensorflow", "mpi", "pytorch", "ray")
)

MUTATING: dict[str, tuple[tuple[str, str, str], tuple[str, ...], tuple[tuple[str, str], ...], str]] = {
    "volcano-job-mutation": (
        _JOB,
        ("CREATE", "UPDATE"),
        (("tasks", "object.?spec.?tasks.orValue([])"),),
        " + ".join((
            _when("object.spec.?queue.orValue('') == ''", "'/spec/queue'", "'default'"),
            _when("object.spec.?schedulerName.orValue('') == ''", "'/spec/schedulerName'", "'volcano'"),
            _when("object.spec.?maxRetry.orValue(0) == 0", "'/spec/maxRetry'", "3"),
            _tasks("t.?name.orValue('') == ''", "name", "'default' + string(i)"),
            _tasks("!has(t.minAvailable)", "minAvailable", _LEAST),
            _tasks("t.?maxRetry.orValue(0) == 0", "maxRetry", "3"),
            _tasks(
                "t.?template.?spec.?hostNetwork.orValue(false) && t.template.spec.?dnsPolicy.orValue('') == ''",
                "template/spec/dnsPolicy", "'ClusterFirstWithHostNet'",
            ),
            _when(
                "!has(object.spec.minAvailable) || (object.spec.minAvailable == 0 && request.operation == 'CREATE')",
                "'/spec/minAvailable'", f"variables.tasks.map(t, has(t.minAvailable) ? t.minAvailable : {_LEAST}).sum()",
            ),
            _when(f"has(object.spec.plugins) && ({_NEEDS_SVC}) && !('svc' in object.spec.plugins)", "'/spec/plugins/svc'", _EMPTY),
            _when(
                "has(object.spec.plugins) && 'mpi' in object.spec.plugins && !('ssh' in object.spec.plugins)", "'/spec/plugins/ssh'", _EMPTY
            ),
        )),
    ),
    "volcano-queue-mutation": (
        QUEUES.resource,
        ("CREATE",),
        (
            ("hierarchy", f"object.metadata.?annotations['{HIERARCHY}'].orValue('')"),
            ("weights", f"object.metadata.?annotations['{HIERARCHY_WEIGHTS}'].orValue('')"),
        ),
        " + ".join((
            "(variables.hierarchy != '' && variables.weights != '' && !variables.hierarchy.startsWith('root') ? ["
            + _ADD.format(f"'/metadata/annotations/' + jsonpatch.escapeKey('{HIERARCHY}')", "'root/' + variables.hierarchy") + ", "
            + _ADD.format(f"'/metadata/annotations/' + jsonpatch.escapeKey('{HIERARCHY_WEIGHTS}')", "'1/' + variables.weights") + "] : [])",
            _when("!has(object.spec.reclaimable)", "'/spec/reclaimable'", "true"),
            _when("object.spec.?weight.orValue(0) == 0", "'/spec/weight'", "1"),
        )),
    ),
    "volcano-podgroup-mutation": (
        POD_GROUPS.resource,
        ("CREATE",),
        (("queue", "namespaceObject.metadata.?annotations['scheduling.volcano.sh/queue-name'].orValue('')"),),
        _when("object.spec.?queue.orValue('default') == 'default' && variables.queue != ''", "'/spec/queue'", "variables.queue"),
    ),
}  # fmt: skip
"""Name without its ending -> (resource, operations, variables, expression of a list of JSON
patches)."""


def mutating(name: str) -> list[Tree]:
    """A mutating policy and its binding."""
    resource, operations, variables, expression = MUTATING[name]
    spec: Tree = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {
            "resourceRules": [_rule(resource, operations)],
        },
        "variables": [{"name": variable, "expression": text} for variable, text in variables],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
    }
    return [
        _object("MutatingAdmissionPolicy", f"{name}-policy", spec),
        _object(
            "MutatingAdmissionPolicyBinding", f"{name}-binding", {"policyName": f"{name}-policy"}
        ),
    ]


def _rule(resource: tuple[str, str, str], operations: tuple[str, ...]) -> Tree:
    group, version, plural = resource
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": list(operations),
        "resources": [plural],
    }


def _object(kind: str, name: str, spec: Tree) -> Tree:
    return {"apiVersion": GROUP, "kind": kind, "metadata": {"name": name}, "spec": spec}
