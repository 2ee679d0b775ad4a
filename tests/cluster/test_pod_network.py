"""Checklist 127 to 137, what pods are to each other and to their node: connections, names, limits,
orderly ends."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.cluster import objects
from tests.cluster.api import Api, Tree, eventually
from tests.cluster.conftest import Kubectl, Namespace
from tests.cluster.objects import container, run
from tests.cluster.test_kubelet import Node, restarts, state

SERVE = (
    "import http.server as h, sys\n"
    "class H(h.BaseHTTPRequestHandler):\n"
    "  def do_GET(s): s.send_response(200); s.end_headers(); s.wfile.write(sys.argv[2].encode())\n"
    "  def log_message(s, *a): pass\n"
    "h.HTTPServer.server_bind = __import__('socketserver').TCPServer.server_bind\n"
    "h.HTTPServer(('', int(sys.argv[1])), H).serve_forever()\n"
)
ASK = (
    "import sys, time, urllib.request as u\n"
    "for i in range(100):\n"
    "  try: print(u.urlopen(sys.argv[1], timeout=2).read().decode()); break\n"
    "  except OSError: time.sleep(0.1)\n"
)


@pytest.fixture
def node(api: Api, ns: Namespace, real_node: str) -> Node:
    return Node(api, ns, real_node)


def own_network(api: Api, real_node: str, ns: Namespace) -> None:
    """Skips where pods share the network of their node."""
    name = "alone"
    node = Node(api, ns, real_node)
    if api.get(ns.path("pods", name)).status != 200:
        node.script(name, "wc -l < /proc/net/route")
    address = node.ended(name)["status"]["podIP"]
    if address.startswith("127."):
        pytest.skip("pods of this node share its network")


def server(node: Node, name: str, word: str, port: int, **spec: Any) -> str:
    """A pod that answers with its word; gives its address."""
    probe = {"readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 1}}
    pod = run(
        name,
        node.name,
        containers=[container("python3", "-c", SERVE, str(port), word, **probe)],
        **spec,
    )
    pod["metadata"].setdefault("labels", {})["serves"] = name
    node.start(pod)
    ready = node.api.wait(
        node.ns.path("pods", name),
        lambda pod: objects.condition(pod, "Ready").get("status") == "True",
    )
    return str(ready["status"]["podIP"])


def asked(node: Node, name: str, url: str) -> str:
    node.start(run(name, node.name, containers=[container("python3", "-c", ASK, url)]))
    node.ended(name)
    return node.log(name).strip()


def test_item_137_pods_have_their_own_ports(
    node: Node, api: Api, real_node: str, ns: Namespace
) -> None:
    own_network(api, real_node, ns)
    one, two = server(node, "first", "one", 80), server(node, "second", "two", 80)
    assert one != two
    assert (asked(node, "ask-one", f"http://{one}/"), asked(node, "ask-two", f"http://{two}/")) == (
        "one",
        "two",
    )


def test_item_137_services_connect(node: Node, api: Api, real_node: str, ns: Namespace) -> None:
    own_network(api, real_node, ns)
    server(node, "shop", "sold", 8080)
    spec = {"selector": {"serves": "shop"}, "ports": [{"port": 80, "targetPort": 8080}]}
    address = api.create(ns.path("services"), {"metadata": {"name": "shop"}, "spec": spec})["spec"][
        "clusterIP"
    ]
    assert asked(node, "by-address", f"http://{address}/") == "sold"
    assert asked(node, "by-name", "http://shop/") == "sold"
    assert asked(node, "by-whole-name", f"http://shop.{ns.name}.svc.cluster.local/") == "sold"


def test_item_135_the_api_server_is_reached_from_within(node: Node) -> None:
    place = "/var/run/secrets/kubernetes.io/serviceaccount"
    script = (
        "import os, ssl, urllib.request as u\n"
        f"c = ssl.create_default_context(cafile='{place}/ca.crt')\n"
        "url = 'https://%s:%s/version' % (os.environ['KUBERNETES_SERVICE_HOST'], os.environ['KUBERNETES_SERVICE_PORT'])\n"
        f"r = u.Request(url, headers={{'Authorization': 'Bearer ' + open('{place}/token').read()}})\n"
        "print('gitVersion' in u.urlopen(r, context=c, timeout=10).read().decode())"
    )
    node.start(run("inside", node.name, containers=[container("python3", "-c", script)]))
    node.ended("inside")
    assert node.log("inside") == "True\n"


def test_item_131_a_pause_before_the_end(node: Node) -> None:
    resting = container(
        "sh",
        "-c",
        "trap 'exit 0' TERM; echo up; while true; do sleep 0.05; done",
        lifecycle={"preStop": {"sleep": {"seconds": 2}}},
    )
    node.start(run("resting", node.name, containers=[resting], terminationGracePeriodSeconds=1000))
    node.running("resting")
    eventually(lambda: "up" in node.log("resting"))
    began = time.monotonic()
    node.api.delete(node.ns.path("pods", "resting"))
    node.api.gone(node.ns.path("pods", "resting"))
    assert time.monotonic() - began > 1.8


def test_item_132_an_unready_pod_leaves_its_service(
    node: Node, api: Api, ns: Namespace, kubectl: Kubectl
) -> None:
    api.create(
        ns.path("services"),
        {
            "metadata": {"name": "fit"},
            "spec": {"selector": {"app": "fit"}, "ports": [{"port": 80}]},
        },
    )
    probe = {
        "exec": {"command": ["sh", "-c", "test -e /tmp/$HOSTNAME.fit"]},
        "periodSeconds": 1,
        "failureThreshold": 1,
    }
    script = "touch /tmp/$HOSTNAME.fit; sleep 1000"
    pod = run("fit", node.name, containers=[container("sh", "-c", script, readinessProbe=probe)])
    pod["metadata"]["labels"] = {"app": "fit"}
    node.start(pod)

    def addresses(which: str) -> list[Tree]:
        tree = api.get(ns.path("endpoints", "fit")).tree
        return [
            address for subset in tree.get("subsets") or [] for address in subset.get(which) or []
        ]

    eventually(lambda: addresses("addresses"))
    kubectl("-n", ns.name, "exec", "fit", "--", "sh", "-c", "rm /tmp/$HOSTNAME.fit")
    eventually(lambda: addresses("notReadyAddresses") and not addresses("addresses"))


def test_item_136_an_empty_directory_that_grows_too_large(node: Node) -> None:
    mount = {"volumeMounts": [{"name": "v", "mountPath": "/hekla-share"}]}
    filling = container("sh", "-c", "head -c 3000000 /dev/zero > /hekla-share/f; sleep 60", **mount)
    volumes = [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}]
    node.start(
        run(
            "growing",
            node.name,
            containers=[filling],
            volumes=volumes,
            terminationGracePeriodSeconds=1,
        )
    )
    status = node.ended("growing", 90)["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "Evicted")
    assert 'Usage of EmptyDir volume "v" exceeds the limit "1Mi".' in status["message"]


def test_item_134_a_sub_path_stays_inside(node: Node) -> None:
    mount = {"volumeMounts": [{"name": "v", "mountPath": "/hekla-share"}]}
    linking = [container("sh", "-c", "ln -s /etc /hekla-share/out", name="linking", **mount)]
    escaping = container(
        "cat",
        "/hekla-out/passwd",
        volumeMounts=[{"name": "v", "mountPath": "/hekla-out", "subPath": "out"}],
    )
    volumes = [{"name": "v", "emptyDir": {}}]
    node.start(
        run("escaping", node.name, containers=[escaping], initContainers=linking, volumes=volumes)
    )

    def refused(pod: Tree) -> bool:
        waiting = (
            (pod["status"].get("containerStatuses") or [{}])[0].get("state", {}).get("waiting", {})
        )
        return bool(waiting.get("reason") == "CreateContainerConfigError")

    node.api.wait(node.ns.path("pods", "escaping"), refused)


def test_item_133_services_in_the_environment(node: Node, api: Api, ns: Namespace) -> None:
    address = api.create(
        ns.path("services"), {"metadata": {"name": "known-one"}, "spec": {"ports": [{"port": 81}]}}
    )["spec"]["clusterIP"]
    lines = node.said("knowing", "env")
    assert {
        f"KNOWN_ONE_SERVICE_HOST={address}",
        "KNOWN_ONE_SERVICE_PORT=81",
        f"KNOWN_ONE_PORT_81_TCP=tcp://{address}:81",
    } <= set(lines)


def test_item_128_a_container_that_always_restarts_keeps_its_count(node: Node) -> None:
    node.script(
        "counted", "sleep 0.2; exit 0", restartPolicy="Always", terminationGracePeriodSeconds=1
    )
    pod = node.api.wait(node.ns.path("pods", "counted"), lambda pod: restarts(pod) >= 1)
    last = pod["status"]["containerStatuses"][0]["lastState"]["terminated"]
    assert (last["exitCode"], last["reason"]) == (0, "Completed")


def test_item_127_a_program_that_is_not_there(node: Node) -> None:
    node.start(run("absent", node.name, containers=[container("/no/such/program")]))
    ended = state(node.ended("absent"))
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert (
        'exec: "/no/such/program": ' in ended["message"]
        and "no such file or directory" in ended["message"]
    )
