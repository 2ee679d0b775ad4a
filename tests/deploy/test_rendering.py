"""What values make of the chart."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.__main__ import CHART, KUBERNETES, MANIFESTS, manifests
from hekla.admission.registration import Where, webhook
from hekla.admission.registry import ADMISSIONS
from hekla.admission.review import Settings
from hekla.agent.daemon import FLAGS as AGENT_FLAGS
from hekla.descheduler.daemon import FLAGS, schedule_of
from hekla.descheduler.policy.reader import read
from hekla.kube.flags import parse
from hekla.kube.log import FLAGS as LOG_FLAGS
from tests.deploy.accounts import Account, Right, granted
from tests.deploy.chart import Chart, Manifests, listed
from tests.kubernetes import programs

pytestmark = programs.slow(60)

DESCHEDULER_PAGE = Path(__file__).parents[2] / "docs" / "descheduler.md"


def rights_of(made: Manifests, role: str) -> set[Right]:
    """What a ClusterRole allows."""
    return granted(Account(made.of("ClusterRole")[role]["rules"], []))


def resources(given: set[Right]) -> set[str]:
    return {resource for _, resource, _ in given}


def test_the_manifests_are_the_chart(helm_program: Path) -> None:
    assert MANIFESTS.read_text() == manifests(str(helm_program)), (
        "`python -m deploy` writes them anew"
    )


@pytest.mark.scenario("controllers", 147)
def test_who_owns_the_hypernodes(chart: Chart) -> None:
    def arguments(*values: str) -> list[str]:
        return list(chart(*values).container("volcano-controllers")["args"])

    together = chart()
    assert "volcano-hypernode-controller" not in together.of("Deployment")
    assert not any("hyperNode" in argument for argument in arguments())
    assert "hypernodes" in resources(rights_of(together, "volcano-controllers"))
    assert "--controllers=*,-sharding-controller,-hyperNode-controller" in arguments(
        "hypernode_controller_mode=disabled"
    )
    own = f"controller_enabled_controllers={listed(('job-controller', 'queue-controller'))}"
    assert "--controllers=job-controller,queue-controller,-hyperNode-controller" in arguments(
        "hypernode_controller_mode=standalone", own
    )
    assert "--controllers=job-controller,queue-controller" in arguments(own)

    apart = chart(
        "hypernode_controller_mode=standalone", "hypernode_controller_replicas=2", release="mine"
    )
    assert any(
        "-hyperNode-controller" in argument
        for argument in apart.container("mine-controllers")["args"]
    )
    assert "hypernodes" not in resources(rights_of(apart, "mine-controllers")), (
        "who does not own them may not write them"
    )
    deployment = apart.of("Deployment")["mine-hypernode-controller"]
    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["selector"]["matchLabels"] == {"app": "volcano-hypernode-controller"}
    assert (
        deployment["spec"]["template"]["spec"]["serviceAccountName"] == "mine-hypernode-controller"
    )
    container = apart.container("mine-hypernode-controller")
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": 11251}
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": 11251}
    assert {
        "--leader-elect=true",
        "--leader-elect-resource-name=mine-hypernode-controller-manager",
    } <= set(container["args"])
    assert (
        apart.of("Service")["mine-hypernode-controller-service"]["spec"]["ports"][0]["port"] == 8081
    )


def test_what_is_not_wanted_is_not_there(chart: Chart) -> None:
    nothing = chart("scheduler_enable=false", "controller_enable=false", "admission_enable=false")
    assert {tree["kind"] for tree in nothing.trees} == {"ConfigMap", "ClusterRole"}
    assert set(nothing.of("ConfigMap")) == {"volcano-controller-configmap"}
    assert set(nothing.of("ClusterRole")) == {"vcjob-editor-role", "vcjob-viewer-role"}
    assert not any(
        kind.endswith("AdmissionPolicy") for kind in {tree["kind"] for tree in chart().trees}
    )
    kept = {tree["kind"] for tree in chart("admission_enable=false", "vap_enable=true").trees}
    assert "ValidatingAdmissionPolicy" in kept and "MutatingAdmissionPolicy" not in kept
    assert "MutatingAdmissionPolicyBinding" in {
        tree["kind"] for tree in chart("map_enable=true").trees
    }
    lone = chart("agent_scheduler_enable=true")
    assert "--scheduler-name=agent-scheduler" in lone.container("volcano-agent-scheduler")["args"]
    assert "queues" not in resources(rights_of(lone, "volcano-agent-scheduler"))


def test_definitions_stay_when_the_release_goes(helm_program: Path, chart: Chart) -> None:
    text = chart.helm(
        "template",
        "volcano",
        str(Path(__file__).parents[2] / "deploy" / "chart"),
        "--kube-version=1.30.0",
    )
    made = [
        tree
        for tree in yaml.safe_load_all(text)
        if tree and tree["kind"] == "CustomResourceDefinition"
    ]
    assert len(made) == 12
    assert all(
        tree["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"} for tree in made
    )


def test_values_of_volcano_are_taken(chart: Chart) -> None:
    """The names under which its chart has them, and what they are for."""
    made = chart(
        "basic.image_registry=registry.example.com",
        "basic.controller_image_name=team/hekla",
        "basic.image_tag_version=v1",
        "basic.scheduler_image_tag_version=v2",
        "basic.image_pull_secret=key",
        "leader_elect_enable=true",
        "scheduler_replicas=2",
        "scheduler_name=mine",
        "scheduler_kube_api_qps=2000",
        "controller_kube_api_burst=100",
        "controller_worker_threads=5",
        "scheduler_config_override=actions: allocate",
        "common_labels.team=a",
        "default_ns.pool=system",
        "scheduler_ns.pool=fast",
        "admission_resources.limits.memory=1Gi",
        "scheduler_main_csc.runAsUser=7",
        "default_tolerations[0].operator=Exists",
        "enabled_admissions=/pods/validate\\,/jobflows/validate",
        "webhooks_namespace_selector_expressions[0].key=batch",
        "webhooks_namespace_selector_expressions[0].operator=Exists",
        "service.ipFamilyPolicy=PreferDualStack",
        "basic.admission_secret_name=volcano-admission-secret",
        "basic.admission_port=9443",
        "go_memlimit_enable=true",
        "scheduler_sharding_mode=soft",
        "sharding_configmap_data=schedulerConfigs: []",
        "scheduler_log_level=5",
    )
    scheduler, controllers, admission = (
        made.container(f"volcano-{name}") for name in ("scheduler", "controllers", "admission")
    )
    assert scheduler["image"] == "registry.example.com/hekla:v2"
    assert controllers["image"] == "registry.example.com/team/hekla:v1"
    assert {
        "--leader-elect=true",
        "--leader-elect-resource-namespace=volcano-system",
        "--scheduler-name=mine",
        "--kube-api-qps=2000",
        "--scheduler-sharding-mode=soft",
        "-v=5",
    } <= set(scheduler["args"])
    assert {"--scheduler-name=mine", "--worker-threads=5", "--kube-api-burst=100"} <= set(
        controllers["args"]
    )
    assert made.of("ConfigMap")["volcano-scheduler-configmap"]["data"] == {
        "volcano-scheduler.conf": "actions: allocate\n"
    }
    assert made.of("ConfigMap")["volcano-sharding-configmap"]["data"] == {
        "sharding.yaml": "schedulerConfigs: []\n"
    }
    pods = {
        name: made.of("Deployment")[f"volcano-{name}"]["spec"]["template"]
        for name in ("scheduler", "controllers", "admission")
    }
    assert pods["scheduler"]["spec"]["nodeSelector"] == {"pool": "fast"} and pods["admission"][
        "spec"
    ]["nodeSelector"] == {"pool": "system"}
    assert pods["controllers"]["spec"]["tolerations"] == [{"operator": "Exists"}]
    assert pods["controllers"]["metadata"]["labels"] == {"app": "volcano-controller", "team": "a"}
    assert pods["controllers"]["spec"]["imagePullSecrets"] == [{"name": "key"}]
    assert (
        scheduler["securityContext"] == {"runAsUser": 7}
        and controllers["securityContext"]["runAsUser"] == 1000
    )
    assert admission["resources"] == {"limits": {"memory": "1Gi"}}
    assert (
        "--tls-cert-file=/admission.local.config/certificates/tls.crt" in admission["args"]
        and "--port=9443" in admission["args"]
    )
    service = made.of("Service")["volcano-admission-service"]["spec"]
    assert (
        service["ipFamilyPolicy"] == "PreferDualStack" and service["ports"][0]["targetPort"] == 9443
    )
    hooks = made.of("ValidatingWebhookConfiguration")
    assert set(hooks) == {
        "volcano-admission-service-pods-validate",
        "volcano-admission-service-jobflows-validate",
    }
    hook = hooks["volcano-admission-service-pods-validate"]["webhooks"][0]
    wanted = webhook(
        ADMISSIONS["/pods/validate"], Where(), b"", Settings(scheduler_names=("mine",))
    )
    assert hook["matchConditions"] == wanted["matchConditions"]
    assert {"key": "batch", "operator": "Exists"} in hook["namespaceSelector"]["matchExpressions"]


def test_every_webhook_is_there(chart: Chart) -> None:
    made = chart(f"enabled_admissions={listed(ADMISSIONS)}")
    found: dict[str, Any] = {
        **made.of("MutatingWebhookConfiguration"),
        **made.of("ValidatingWebhookConfiguration"),
    }
    where = Where("", "volcano-system", "volcano-admission-service")
    for admission in ADMISSIONS.values():
        wanted = webhook(admission, where, b"", Settings())
        del wanted["clientConfig"]["caBundle"]
        assert found[admission.configuration]["webhooks"] == [wanted]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            "hypernode_controller_mode=alone",
            '"alone" is none of controller-manager, standalone and disabled',
        ),
        ("scheduler_replicas=2", "set custom.leader_elect_enable"),
        ("controller_replicas=3", "set custom.leader_elect_enable"),
        ("scheduler_replica=1", "'scheduler_replica' not allowed"),
        ("basic.image=x", "'image' not allowed"),
        ("metrics_enable=true", "this chart brings no Prometheus"),
        ("agent_cni_config_path=cni.conflist", "agent_cni_config_path"),
        ("agent_numatopology_check_period=often", "agent_numatopology_check_period"),
        ("enabled_admissions=/jobs/mutat", '"/jobs/mutat" is none of /cronjobs/validate, '),
        (
            "basic.scheduler_config_file=config/nothing.conf",
            "config/nothing.conf: there is no such file in the chart",
        ),
    ],
)
def test_values_that_are_refused(chart: Chart, value: str, said: str) -> None:
    assert said in chart.refused(value)


def test_nobody_owns_hypernodes_without_copies(chart: Chart) -> None:
    assert "has to be 1 or more" in chart.refused(
        "hypernode_controller_mode=standalone", "hypernode_controller_replicas=0"
    )


def test_a_descheduler(chart: Chart) -> None:
    made = chart("descheduler_enable=true", "leader_elect_enable=true", "descheduler_replicas=2", "descheduler_interval=10m",
                 "descheduler_dry_run=true")  # fmt: skip
    arguments = made.container("volcano-descheduler")["args"]
    options = parse((*FLAGS, *LOG_FLAGS), arguments)
    assert (options.descheduling_interval, options.dry_run, options.leader_elect) == (
        600,
        True,
        True,
    )
    (config,) = made.of("ConfigMap")["volcano-descheduler"]["data"].items()
    assert options.policy_config_file == "/policy-dir/policy.yaml"
    assert config[0] == "policy.yaml"
    assert read(config[1]).profiles[0].balance == ("LoadAware",)
    given = rights_of(made, "volcano-descheduler")
    assert ("", "pods/eviction", "create") in given
    assert not [right for right in given if right[2] in ("delete", "deletecollection", "*")]
    assert "several copies" in chart.refused("descheduler_enable=true", "descheduler_replicas=2")
    assert "set one of the two" in chart.refused(
        "descheduler_interval=5m", "descheduler_cron_expression=@hourly"
    )
    usual = chart("descheduler_enable=true").container("volcano-descheduler")["args"]
    assert parse((*FLAGS, *LOG_FLAGS), usual).descheduling_interval == 300


def test_a_secret_for_prometheus(chart: Chart) -> None:
    made = chart("descheduler_enable=true", "descheduler_secret_name=prometheus")
    pod = made.of("Deployment")["volcano-descheduler"]["spec"]["template"]["spec"]
    assert {"name": "secret", "secret": {"secretName": "prometheus"}} in pod["volumes"]
    mount = {"name": "secret", "mountPath": "/prometheus", "readOnly": True}
    assert mount in pod["containers"][0]["volumeMounts"]


def test_a_descheduler_that_asks_the_scheduler(chart: Chart) -> None:
    name = "volcano-descheduler-what-if"
    assert name not in chart("descheduler_enable=true").of("ClusterRoleBinding")
    asking = chart("descheduler_enable=true", "descheduler_asks_scheduler=true")
    binding = asking.of("ClusterRoleBinding")[name]
    assert binding["roleRef"]["name"] in asking.of("ClusterRole")
    assert binding["subjects"][0]["name"] in asking.of("ServiceAccount")
    without = ("descheduler_asks_scheduler=true", "scheduler_snapshot_enable=false")
    assert "set custom.scheduler_snapshot_enable" in chart.refused(
        "descheduler_enable=true", *without
    )
    # nobody asks here, or the scheduler is another release's
    chart(*without)
    chart("descheduler_enable=true", "scheduler_enable=false", *without)


def test_a_descheduler_that_sets_deletion_costs(chart: Chart) -> None:
    def given(*values: str) -> set[Right]:
        return rights_of(chart("descheduler_enable=true", *values), "volcano-descheduler")

    assert given("descheduler_sets_deletion_costs=true") - given() == {("", "pods", "patch")}


def test_values_of_the_page_about_the_descheduler(chart: Chart, tmp_path: Path) -> None:
    (written,) = re.findall(r"```yaml\n(custom:\n.*?)```", DESCHEDULER_PAGE.read_text(), re.DOTALL)
    (tmp_path / "values.yaml").write_text(written)
    made = Manifests(
        chart.helm(
            "template", "volcano", str(CHART), KUBERNETES, f"--values={tmp_path / 'values.yaml'}"
        )
    )
    container = made.container("volcano-descheduler")
    options = parse((*FLAGS, *LOG_FLAGS), container["args"])
    assert schedule_of(options) is not None and options.dry_run
    assert container["resources"]["requests"]["cpu"] == "100m"
    (policy,) = made.of("ConfigMap")["volcano-descheduler"]["data"].values()
    assert read(policy).profiles[0].deschedule == ("RemoveFailedPods",)


def agent_of(made: Manifests) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pod of the agent's DaemonSet, and its container."""
    pod = made.of("DaemonSet")["volcano-agent"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"] == ["hekla", "agent"]
    return pod, container


def test_an_agent_on_every_node(chart: Chart) -> None:
    assert "DaemonSet" not in {tree["kind"] for tree in chart().trees}
    made = chart("colocation_enable=true")
    daemons = made.of("DaemonSet")["volcano-agent"]
    template = daemons["spec"]["template"]
    assert daemons["spec"]["updateStrategy"]["rollingUpdate"] == {
        "maxUnavailable": "10%",
        "maxSurge": 0,
    }
    assert template["metadata"]["labels"]["name"] == "volcano-agent"
    assert template["metadata"]["annotations"] == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": "3300",
        "prometheus.io/path": "/metrics",
        "prometheus.io/scheme": "http",
    }
    pod, container = agent_of(made)
    assert (pod["hostNetwork"], pod["dnsPolicy"], pod["priorityClassName"]) == (
        True,
        "Default",
        "system-node-critical",
    )
    assert pod["tolerations"] == [
        {"key": "volcano.sh/offline-job-evicting", "operator": "Exists", "effect": "NoSchedule"}
    ]
    assert container["livenessProbe"] == {
        "httpGet": {"path": "/healthz", "port": 3300},
        "initialDelaySeconds": 60,
        "timeoutSeconds": 5,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 5,
    }
    options = parse((*AGENT_FLAGS, *LOG_FLAGS), container["args"])
    assert (options.healthz_port, options.v) == (3300, 2)
    assert "numatopologies" not in resources(rights_of(made, "volcano-agent"))
    environment = {one["name"]: one for one in container["env"]}
    assert environment["SYS_FS_PATH"]["value"] == "/host/sys/fs"
    assert environment["KUBE_NODE_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"


def test_values_of_the_agent(chart: Chart) -> None:
    made = chart(
        "colocation_enable=true",
        "basic.image_registry=registry.example.com",
        "basic.agent_image_name=team/agent",
        "basic.agent_image_tag_version=v3",
        f"agent_supported_features={listed(('*', '-CPUThrottle'))}",
        "agent_kube_cgroup_root=/pods",
        "agent_extend_resource_cpu_name=example.com/cpu",
        "agent_extend_resource_memory_name=example.com/memory",
        "agent_cni_config_path=/etc/rancher/cni/10-pods.conflist",
        "agent_tolerations[0].operator=Exists",
        "agent_resources.limits.memory=100Mi",
        "agent_ns.pool=mixed",
        "agent_log_level=4",
        "agent_oversubscription_ratio=40",
        "agent_evict_at_memory_pressure=12.5",
        "agent_numatopology_check_period=30s",
    )
    pod, container = agent_of(made)
    assert container["image"] == "registry.example.com/team/agent:v3"
    assert pod["initContainers"][0]["image"] == container["image"]
    options = parse((*AGENT_FLAGS, *LOG_FLAGS), container["args"])
    assert options.supported_features == ["*", "-CPUThrottle"]
    assert (options.kube_cgroup_root, options.v) == ("/pods", 4)
    assert (options.oversubscription_ratio, options.evict_at_memory_pressure) == (40, 12.5)
    assert options.numatopology_check_period == 30
    assert "numatopologies" in resources(rights_of(made, "volcano-agent"))
    assert options.extend_resource_cpu_name == "example.com/cpu"
    assert options.extend_resource_memory_name == "example.com/memory"
    assert {
        "name": "CNI_CONF_FILE_PATH",
        "value": "/host/etc/rancher/cni/10-pods.conflist",
    } in container["env"]
    assert {"name": "cni", "mountPath": "/host/etc/rancher/cni"} in container["volumeMounts"]
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["nodeSelector"] == {"pool": "mixed"}
    assert container["resources"] == {"limits": {"memory": "100Mi"}}


def test_the_agent_sees_and_may_do_no_more_than_its_features_need(chart: Chart) -> None:
    """It runs as root, to whom cgroups belong, and without any of root's capabilities."""

    def of(*features: str) -> tuple[set[str], Any]:
        told = f"agent_supported_features={listed(features)}"
        pod, container = agent_of(chart("colocation_enable=true", told))
        assert {mount["name"] for mount in container["volumeMounts"]} | {"settings"} == {
            volume["name"] for volume in pod["volumes"]
        }
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        written = {
            mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")
        }
        return written, container["securityContext"]["capabilities"]

    few = ({"/tmp", "/run/hekla-agent", "/host/sys/fs/cgroup"}, {"drop": ["ALL"]})
    assert of("") == of("*", "-NetworkQoS") == of("Resources", "CPUQoS") == few
    shaping = (few[0] | {"/host/etc/cni/net.d"}, {"drop": ["ALL"], "add": ["NET_ADMIN"]})
    assert of("*") == of("Resources", "NetworkQoS") == shaping


def test_containers_write_nowhere_but_to_memory(chart: Chart) -> None:
    made = chart("agent_scheduler_enable=true", "descheduler_enable=true")
    for name, deployment in made.of("Deployment").items():
        pod = deployment["spec"]["template"]["spec"]
        container = pod["containers"][0]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True, name
        assert {"name": "temporary", "mountPath": "/tmp"} in container["volumeMounts"]
        assert {"name": "temporary", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}} in pod[
            "volumes"
        ]
        places = {mount["name"] for mount in container["volumeMounts"]}
        assert places == {volume["name"] for volume in pod["volumes"]}, name


def test_only_served_ports_are_reached(chart: Chart) -> None:
    """A policy for each Deployment, which takes its pods, lets all to health and webhooks, and to
    metrics those who are named."""
    made = chart(
        "agent_scheduler_enable=true",
        "descheduler_enable=true",
        "network_policy_metrics_from[0].podSelector.matchLabels.app=prometheus",
    )
    policies = made.of("NetworkPolicy")
    assert policies.keys() == made.of("Deployment").keys()
    for name, policy in policies.items():
        template = made.of("Deployment")[name]["spec"]["template"]
        selector = policy["spec"]["podSelector"]["matchLabels"]
        assert selector.items() <= template["metadata"]["labels"].items() and policy["spec"][
            "policyTypes"
        ] == ["Ingress"]
        served = {port["containerPort"] for port in made.container(name)["ports"]}
        assert {
            port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]
        } == served, name
    open_to_all, for_some = policies["volcano-scheduler"]["spec"]["ingress"]
    assert "from" not in open_to_all and for_some["from"] == [
        {"podSelector": {"matchLabels": {"app": "prometheus"}}}
    ]
    assert not chart("network_policies_enable=false").of("NetworkPolicy")
    closed = chart("network_policy_egress[0].ports[0].port=443").of("NetworkPolicy")[
        "volcano-admission"
    ]["spec"]
    assert closed["policyTypes"] == ["Ingress", "Egress"] and closed["egress"] == [
        {"ports": [{"port": 443}]}
    ]


def test_secrets_are_seen_where_jobs_may_use_them(chart: Chart) -> None:
    """Nobody lists or watches Secrets; where namespaces are named the controllers see those of no
    other."""
    for tree in chart().of("ClusterRole").values():
        for rule in tree["rules"]:
            if "secrets" in rule.get("resources", ()):
                assert tree["metadata"]["name"] == "volcano-controllers" and not {
                    "list",
                    "watch",
                    "patch",
                } & set(rule["verbs"])
    made = chart("controller_secret_namespaces={team-a,team-b}")
    assert not [
        rule
        for tree in made.of("ClusterRole").values()
        for rule in tree["rules"]
        if "secrets" in rule.get("resources", ())
    ]
    roles = [
        tree
        for tree in made.trees
        if tree["kind"] in ("Role", "RoleBinding") and tree["metadata"]["name"].endswith("-secrets")
    ]
    found = sorted((tree["metadata"]["namespace"], tree["kind"]) for tree in roles)
    assert found == [
        (team, kind) for team in ("team-a", "team-b") for kind in ("Role", "RoleBinding")
    ]


def test_images_are_named_by_digest(chart: Chart) -> None:
    digest, other = "sha256:" + "a" * 64, "sha256:" + "b" * 64
    made = chart(
        f"basic.image_digest={digest}",
        f"basic.admission_image_digest={other}",
        "basic.image_registry=r.example.com/t",
    )
    assert made.container("volcano-scheduler")["image"] == f"r.example.com/t/hekla@{digest}"
    assert made.container("volcano-admission")["image"] == f"r.example.com/t/hekla@{other}"
    assert "does not match" in chart.refused("basic.image_digest=latest").lower()


def test_a_claim_keeps_what_the_scheduler_has_learned(chart: Chart) -> None:
    def learns(scheduler: Any) -> bool:
        return "--learned-walltimes=/var/lib/hekla/walltimes.db" in scheduler["args"]

    assert not learns(chart().container("volcano-scheduler"))
    kept = chart("scheduler_state_claim=memory")
    assert learns(kept.container("volcano-scheduler"))
    pod = kept.of("Deployment")["volcano-scheduler"]["spec"]["template"]["spec"]
    claim = {"name": "state", "persistentVolumeClaim": {"claimName": "memory"}}
    assert claim in pod["volumes"]
    assert {"name": "state", "mountPath": "/var/lib/hekla"} in pod["containers"][0]["volumeMounts"]
