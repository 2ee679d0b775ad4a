"""Pods with networks of their own, as root gives them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio
import yaml

from hekla.api.kubernetes import core
from hekla.local.kubelet.network.network import Network, ask, connect, end
from tests.kubelet.live_cluster import (
    NODE_NAME,
    PATIENCE,
    POD,
    Cluster,
    cluster,
    condition,
    container,
)
from tests.ports import free_port

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVER = (
    "import http.server,os,sys\n"
    "class H(http.server.BaseHTTPRequestHandler):\n"
    "  def do_GET(s):\n"
    "    s.send_response(200); s.end_headers(); s.wfile.write(sys.argv[2].encode())\n"
    "  def log_message(s,*a): pass\n"
    "class S(http.server.ThreadingHTTPServer):\n"
    "  def server_bind(s):\n"
    "    import socketserver; socketserver.TCPServer.server_bind(s); s.server_name=''; s.server_port=0\n"
    "S(('0.0.0.0',int(sys.argv[1])),H).serve_forever()\n"
)
GET = (
    "import sys,time,urllib.request\n"
    "for i in range(80):\n"
    "  try: print(urllib.request.urlopen(sys.argv[1],timeout=3).read().decode()); break\n"
    "  except OSError as e: last=e; time.sleep(0.1)\n"
    "else: print('never',last)\n"
)


LOOK_UP = (
    "import socket,sys\n"
    "query = bytes.fromhex('000701000001000000000000') + b'\\3any\\7cluster\\5local\\0' + bytes([0, 1, 0, 1])\n"
    "for _ in sys.stdin:\n"
    "  with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:\n"
    "    asking.settimeout(5)\n"
    "    asking.sendto(query, (sys.argv[1], 53))\n"
    "    asking.recv(512)\n"
    "  known = (line.split() for line in open('/proc/thread-self/net/arp'))\n"
    "  print(*(words[3] for words in known if words[0] == sys.argv[1]), flush=True)\n"
)
"""For each line of its input: asks the server of names, and says which hardware address it believes
to be the server's."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live(
    pods_have_networks: None, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cluster]:
    async with cluster(tmp_path_factory.mktemp("net"), "--node-cpu=8", "--node-memory=8Gi") as made:
        yield made


async def serve(live: Cluster, name: str, word: str, port: int = 80, **more: Any) -> str:
    """A pod that answers with its word on every address; gives its address."""
    labels = {"labels": {"app": more.pop("app", name)}}
    await live.create(name, "python3", "-c", SERVER, str(port), word, metadata=labels, **more)
    pod = await live.until(name, lambda p: p and condition(p, "Ready").get("status") == "True")
    return str(pod["status"]["podIP"])


async def get(live: Cluster, name: str, url: str, **more: Any) -> str:
    """What a pod of its own is answered at a URL."""
    await live.create(name, "python3", "-c", GET, url, **more)
    await live.phase(name, "Succeeded")
    return (await live.log(name)).strip()


async def fetch(host: str, port: int) -> bytes:
    """What this machine is answered."""
    for _ in range(600):
        try:
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            answer = await reader.read()
            writer.close()
            return answer.rpartition(b"\r\n")[2]
        except OSError:  # it does not listen yet
            await asyncio.sleep(0.1)
    raise AssertionError(f"nobody answered at {host}:{port}")


async def laid_anew(address: str, words: bytes) -> None:
    """Waits until the pod answers again; until its network is back, somebody beyond the cluster may
    answer in its place."""
    deadline = time.monotonic() + PATIENCE
    while await fetch(address, 80) != words:
        assert time.monotonic() < deadline, (
            f"the pod at {address} has no network again after {PATIENCE:.0f} s"
        )
        await asyncio.sleep(0.1)


@pytest.mark.scenario("local-cluster", 137)
async def test_pods_listen_on_the_same_port_and_reach_each_other(live: Cluster) -> None:
    one, two = await serve(live, "one", "first"), await serve(live, "two", "second")
    assert one != two
    assert await fetch(one, 80) == b"first"
    assert await fetch(two, 80) == b"second"
    assert await get(live, "ask-two", f"http://{two}/") == "second"


async def test_the_example_of_the_page(live: Cluster) -> None:
    page = (Path(__file__).parents[2] / "docs" / "local-runtime.md").read_text()
    text = next(
        block.partition("```")[0]
        for block in page.split("```yaml\n")[1:]
        if "kind: Service" in block
    )
    service, shop, customer = yaml.safe_load_all(text)
    await live.client.create(core.SERVICE.untyped, service, "default")
    for pod in (shop, customer):
        pod["spec"] |= {
            "nodeName": NODE_NAME,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
        }
    await live.client.create(POD, shop, "default")
    await live.log_has("shop", "listening on")
    await asyncio.sleep(0.2)  # names gather for a moment before the network is told
    await live.client.create(POD, customer, "default")
    await live.phase("customer", "Succeeded")
    assert (await live.log("customer")).endswith("200\n")


async def test_containers_of_a_pod_share_its_loopback(live: Cluster) -> None:
    main = {"name": "c", "image": "x", "command": ["python3", "-c", GET, "http://127.0.0.1:8123/"]}
    beside = {
        "name": "beside",
        "image": "x",
        "restartPolicy": "Always",
        "command": ["python3", "-c", SERVER, "8123", "beside"],
    }
    await live.create("together", containers=[main], initContainers=[beside])
    await live.phase("together", "Succeeded")
    assert (await live.log("together", container="c")).strip() == "beside"


async def test_services_lead_to_ready_pods_by_address_and_by_name(live: Cluster) -> None:
    ports = {"ports": [{"name": "web", "containerPort": 8099}]}
    await serve(live, "back", "behind", 8099, c=ports)
    spec = {
        "selector": {"app": "back"},
        "ports": [{"name": "http", "port": 80, "targetPort": "web"}],
    }
    made = await live.client.create(
        core.SERVICE.untyped, {"metadata": {"name": "store", "namespace": "default"}, "spec": spec}
    )
    assert await get(live, "by-name", "http://store/") == "behind"
    assert await get(live, "by-whole-name", "http://store.default.svc.cluster.local/") == "behind"
    assert await get(live, "by-address", f"http://{made['spec']['clusterIP']}/") == "behind"
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
    await live.create(
        "unfit",
        "python3",
        "-c",
        SERVER,
        "8099",
        "unfit",
        metadata={"labels": {"app": "back"}},
        c={**ports, "readinessProbe": probe},
    )
    await live.phase("unfit", "Running")
    assert {await get(live, f"turn-{n}", "http://store/") for n in range(3)} == {"behind"}


async def test_headless_services_and_pods_have_names(live: Cluster) -> None:
    spec = {
        "selector": {"app": "member"},
        "clusterIP": "None",
        "ports": [{"name": "peer", "port": 7000}],
    }
    await live.client.create(
        core.SERVICE.untyped, {"metadata": {"name": "ring", "namespace": "default"}, "spec": spec}
    )
    addresses = {
        await serve(
            live, f"m-{n}", f"m{n}", 7000, app="member", hostname=f"m-{n}", subdomain="ring"
        )
        for n in (0, 1)
    }
    assert await get(live, "by-host", "http://m-1.ring:7000/") == "m1"
    script = "getent ahostsv4 ring | awk '{print $1}' | sort -u"
    await live.create(
        "all",
        "sh",
        "-c",
        f"for i in $(seq 50); do [ $({script} | wc -l) = 2 ] && break; sleep 0.1; done; {script}",
    )
    await live.phase("all", "Succeeded")
    assert set((await live.log("all")).split()) == addresses


async def test_the_files_of_names(live: Cluster) -> None:
    more: dict[str, Any] = {
        "hostname": "host",
        "subdomain": "sub",
        "setHostnameAsFQDN": True,
        "hostAliases": [{"ip": "192.0.2.7", "hostnames": ["alias"]}],
        "dnsConfig": {"searches": ["more.example"], "options": [{"name": "timeout", "value": "1"}]},
    }
    await live.create(
        "files",
        "sh",
        "-c",
        "hostname; cat /etc/hostname; getent hosts alias; cat /etc/resolv.conf /etc/hosts",
        **more,
    )
    pod = await live.phase("files", "Succeeded")
    lines = (await live.log("files")).splitlines()
    assert lines[:2] == ["host.sub.default.svc.cluster.local", "host"]
    assert lines[2].split() == ["192.0.2.7", "alias"]
    assert lines[3].startswith(
        "search default.svc.cluster.local svc.cluster.local cluster.local"
    ) and lines[3].endswith("more.example")
    assert lines[5] == "options ndots:5 timeout:1"
    assert (
        f"{pod['status']['podIP']}\thost.sub.default.svc.cluster.local host host.sub host.sub.default host.sub.default.svc"
        in lines
    )
    await live.create(
        "own-dns",
        "cat",
        "/etc/resolv.conf",
        dnsPolicy="None",
        dnsConfig={"nameservers": ["192.0.2.53"]},
    )
    await live.phase("own-dns", "Succeeded")
    assert await live.log("own-dns") == "nameserver 192.0.2.53\n"


async def test_host_ports_node_ports_and_the_machines_network(live: Cluster) -> None:
    port = free_port()
    await serve(
        live, "ported", "through", 8080, c={"ports": [{"containerPort": 8080, "hostPort": port}]}
    )
    assert await fetch("127.0.0.1", port) == b"through"
    spec = {
        "type": "NodePort",
        "selector": {"app": "ported"},
        "ports": [{"port": 80, "targetPort": 8080}],
    }
    made = await live.client.create(
        core.SERVICE.untyped, {"metadata": {"name": "noded", "namespace": "default"}, "spec": spec}
    )
    assert await fetch("127.0.0.1", made["spec"]["ports"][0]["nodePort"]) == b"through"
    await live.create("as-host", "sh", "-c", "readlink /proc/self/ns/net", hostNetwork=True)
    pod = await live.phase("as-host", "Succeeded")
    assert (await live.log("as-host")).strip() == os.readlink("/proc/self/ns/net")
    assert pod["status"]["podIP"] == pod["status"]["hostIP"]


async def test_connections_leave_the_cluster(live: Cluster) -> None:
    """To an address of this machine that is not the pods' own."""
    own = [
        a.address
        for name, found in psutil.net_if_addrs().items()
        for a in found
        if a.family == socket.AF_INET
        and not a.address.startswith("127.")
        and not name.startswith("hekla")
    ]
    if not own:
        pytest.skip("this machine has no address beside its loopback")
    with socket.create_server((own[0], 0)) as server:
        call = f"import socket; socket.create_connection(('{own[0]}', {server.getsockname()[1]}), 10).sendall(b'out')"
        await live.create("outbound", "python3", "-c", call)
        server.settimeout(15)
        connection, _ = await asyncio.to_thread(server.accept)
        with connection:
            connection.settimeout(15)
            assert await asyncio.to_thread(connection.recv, 3) == b"out"
    await live.phase("outbound", "Succeeded")


async def test_probes_reach_the_pod(live: Cluster) -> None:
    probes = {
        "readinessProbe": {"httpGet": {"port": 8200}, "periodSeconds": 1},
        "livenessProbe": {"tcpSocket": {"port": 8200}, "periodSeconds": 1},
    }
    await serve(live, "probed", "fine", 8200, c=probes)
    look = ["python3", "-c", "import socket; socket.create_connection(('127.0.0.1', 8201), 1)"]
    # A busy machine starts no Python in one.
    listen = {
        "exec": {"command": look},
        "periodSeconds": 1,
        "timeoutSeconds": 10,
    }
    await serve(live, "asked-inside", "fine", 8201, c={"readinessProbe": listen})


@pytest.mark.scenario("local-cluster", 144)
async def test_networks_outlive_the_agent_and_are_laid_anew_when_their_daemon_dies(
    live: Cluster,
) -> None:
    address = await serve(live, "lasting", "still here")
    assert await fetch(address, 80) == b"still here"
    reader, writer = await asyncio.open_connection(address, 80)
    live.kubelet.kill()
    live.kubelet.start()
    writer.write(b"GET / HTTP/1.0\r\n\r\n")  # the connection of before
    assert (await asyncio.wait_for(reader.read(), PATIENCE)).endswith(b"still here")
    writer.close()
    assert await get(live, "after-kubelet", f"http://{address}/") == "still here"
    with connect(live.kubelet.root) as connection:
        pid = ask(connection, {"do": "hello"})["pid"]
    os.kill(pid, signal.SIGKILL)
    await laid_anew(address, b"still here")
    assert await get(live, "after-daemon", f"http://{address}/") == "still here"
    assert await fetch(address, 80) == b"still here"
    assert container(await live.pod("lasting"))["restartCount"] == 0
    await live.client.delete(POD, "lasting", "default", grace=0)


async def test_endpoints_that_users_create_are_used(live: Cluster) -> None:
    address = await serve(live, "manual", "by hand", 8300)
    spec = {"ports": [{"port": 80, "targetPort": 8300}]}
    await live.client.create(
        core.SERVICE.untyped,
        {"metadata": {"name": "external", "namespace": "default"}, "spec": spec},
    )
    subsets = [{"addresses": [{"ip": address}], "ports": [{"port": 8300}]}]
    await live.client.create(
        core.ENDPOINTS.untyped,
        {"metadata": {"name": "external", "namespace": "default"}, "subsets": subsets},
    )
    assert await get(live, "ask-external", "http://external/") == "by hand"


async def test_pods_that_come_do_not_cut_off_those_that_are_there(
    pods_have_networks: None, tmp_path: Path
) -> None:
    """A bridge without an address of its own takes another with the ports, and pods lose for half a
    minute whoever stands behind it."""
    network = Network(tmp_path)
    try:
        await network.ready()
        first = network.base.rpartition(".")[0]
        path = await network.attach("u0", f"{first}.3", [], [])
        command = ["nsenter", f"--net={path}", sys.executable, "-c", LOOK_UP, network.gateway]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as pod:
            assert pod.stdin is not None and pod.stdout is not None

            def look_up() -> str:
                assert pod.stdin is not None and pod.stdout is not None
                print("now", file=pod.stdin, flush=True)
                return pod.stdout.readline().strip()

            own = "0a:58:" + socket.inet_aton(network.gateway).hex(":")
            assert await asyncio.to_thread(look_up) == own
            for number in range(1, 20):
                await network.attach(f"u{number}", f"{first}.{3 + number}", [], [])
            assert await asyncio.to_thread(look_up) == own
        await network.close()
    finally:
        end(tmp_path)


async def test_more_pods_than_a_bridge_has_ports(pods_have_networks: None, tmp_path: Path) -> None:
    """With two ports a bridge: pods on the second and third bridge reach those on the first, and
    the machine reaches all."""
    program = (
        "from hekla.local.kubelet.network import bridges, network_daemon; "
        f"bridges.MAX_BRIDGE_PORTS = 2; network_daemon.main([{str(tmp_path)!r}])"
    )
    started = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    try:
        assert started.stdout is not None and started.stdout.readline() == b"ready\n"
        network = Network(tmp_path)
        await network.ready()
        address = [network.base.rpartition(".")[0] + f".{n}" for n in range(3, 8)]
        paths = [await network.attach(f"u{n}", ip, [], []) for n, ip in enumerate(address)]
        serving = [
            "nsenter",
            f"--net={paths[0]}",
            sys.executable,
            "-c",
            SERVER,
            "80",
            "first bridge",
        ]
        ask_it = [
            "nsenter",
            f"--net={paths[4]}",
            sys.executable,
            "-c",
            GET,
            f"http://{address[0]}/",
        ]
        with subprocess.Popen(serving) as server:
            try:
                said = await asyncio.to_thread(
                    subprocess.run, ask_it, capture_output=True, text=True, timeout=20, check=True
                )
                assert said.stdout.strip() == "first bridge"
                assert await fetch(address[0], 80) == b"first bridge"
            finally:
                server.kill()
        await network.close()
    finally:
        end(tmp_path)
        assert started.wait(10) == 0


async def test_a_dead_daemons_subnet_is_taken_again_while_the_kernel_still_has_it(
    pods_have_networks: None, tmp_path: Path
) -> None:
    """The kernel takes namespaces away when it has time; somebody who holds one makes that last."""
    command = [sys.executable, "-m", "hekla.local.kubelet.network.network_daemon", str(tmp_path)]
    started = subprocess.Popen(command, stdout=subprocess.PIPE)
    serving = None
    try:
        assert started.stdout is not None and started.stdout.readline() == b"ready\n"
        first = Network(tmp_path)
        await first.ready()
        address = first.base.rpartition(".")[0] + ".3"
        path = await first.attach("u1", address, [], [])
        serving = subprocess.Popen(
            ["nsenter", f"--net={path}", sys.executable, "-c", SERVER, "80", "still here"]
        )
        assert await fetch(address, 80) == b"still here"
        held = os.open(f"/proc/{started.pid}/ns/net", os.O_RDONLY)
        await first.close()
        started.kill()
        started.wait(10)
        second = Network(tmp_path)
        try:
            await second.ready()
            assert second.base == first.base
            await second.attach("u1", address, [serving.pid], [])
            assert await fetch(address, 80) == b"still here"
        finally:
            os.close(held)
            await second.close()
    finally:
        if serving is not None:
            serving.kill()
            serving.wait(10)
        started.kill()
        started.wait(10)
        end(tmp_path)


async def test_a_network_daemon_outlives_an_agent_that_is_killed_while_it_starts(
    pods_have_networks: None, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "hekla.local.kubelet.network.network_daemon", str(tmp_path)]
    started = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert started.stdout is not None
        started.stdout.close()
        while not (tmp_path / "network.sock").exists():
            assert started.poll() is None
            await asyncio.sleep(0.01)
        with pytest.raises(subprocess.TimeoutExpired):
            started.wait(0.5)  # nobody reads that it is ready
        network = Network(tmp_path)
        await network.ready()
        assert (await network.ask({"do": "hello"}))["pid"] == started.pid
        await network.close()
    finally:
        end(tmp_path)
        assert started.wait(10) == 0


@pytest.mark.slow
async def test_a_network_that_nobody_needs_any_more_ends_by_itself(
    pods_have_networks: None, tmp_path: Path
) -> None:
    """As after kill -9 of a whole cluster."""
    network = Network(tmp_path)
    await network.ready()
    process = network._process
    await network.close()
    assert process is not None
    assert await asyncio.to_thread(process.wait, 40) == 0
    with pytest.raises(OSError):
        connect(tmp_path)


async def test_a_network_is_not_up_before_its_addresses_are_known(tmp_path: Path) -> None:
    """A pod that came in between would get an address of another network."""
    asked, answer = asyncio.Event(), asyncio.Event()

    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        message = json.loads(await reader.readline())
        asked.set()
        await answer.wait()
        told = {
            "base": "10.250.0.0",
            "prefix": 20,
            "gateway": "10.250.0.1",
            "host": "10.250.0.2",
            "wayOut": "",
        }
        writer.write(json.dumps({"id": message["id"], **told}).encode() + b"\n")
        await reader.read()
        writer.close()

    async with await asyncio.start_unix_server(keep, tmp_path / "network.sock"):
        network = Network(tmp_path)
        first = asyncio.create_task(network.ready())
        await asked.wait()
        assert not network.up
        second = asyncio.create_task(network.ready())
        await asyncio.sleep(0)
        assert not second.done()
        answer.set()
        await asyncio.gather(first, second)
        assert network.up and network.base == "10.250.0.0"
        await network.close()


async def test_two_networks_stand_side_by_side_and_leave_nothing(
    pods_have_networks: None, tmp_path: Path
) -> None:
    routes = Path("/proc/net/route").read_text()
    roots = [tmp_path / name for name in ("a", "b")]
    networks = []
    for root in roots:
        root.mkdir()
        network = Network(root)
        await network.ready()
        await network.attach("u1", network.base.rpartition(".")[0] + ".3", [], [])
        networks.append(network)
    assert networks[0].base != networks[1].base
    ours = {network.base for network in networks}
    interfaces = [name for name in psutil.net_if_addrs() if name.startswith("hekla")]
    assert len(interfaces) >= 2
    for network, root in zip(networks, roots, strict=True):
        await network.close()
        end(root)
    for _ in range(400):
        left = {
            a.address
            for name, found in psutil.net_if_addrs().items()
            if name.startswith("hekla")
            for a in found
        }
        if not any(
            address.rpartition(".")[0] == base.rpartition(".")[0]
            for address in left
            for base in ours
        ):
            break
        await asyncio.sleep(0.05)
    else:
        pytest.fail(f"interfaces are left: {left}")
    mine = {
        line
        for line in Path("/proc/net/route").read_text().splitlines()
        if not line.startswith("hekla")
    }
    assert mine == {line for line in routes.splitlines() if not line.startswith("hekla")}
