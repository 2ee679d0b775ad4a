"""The sandbox of a pod: its directory, address, names, and its place in the pods' network."""

from __future__ import annotations

from collections.abc import Iterable

from hekla.local.kubelet.addresses import HOST_ADDRESS
from hekla.local.kubelet.pods.containers import Container
from hekla.local.kubelet.pods.context import PodContext
from hekla.local.kubelet.records import PodRecord


class PodSandbox:
    """What containers of one pod share.  It alone sets `sandbox` and `pod_ip` of the pod's view."""

    def __init__(self, context: PodContext) -> None:
        self._context = context
        self.network_namespace: str | None = None
        """Path of the pod's network namespace; None until it is connected, "" where it shares the
        machine's."""

    @property
    def address(self) -> str:
        return self._context.view.pod_ip

    async def ensure(self, containers: Iterable[Container]) -> None:
        """Give the pod its address and connect it to the network, if that has not been done.
        Raises NetworkError."""
        if self.network_namespace is not None:
            return
        context = self._context
        host, uid, view = context.host, context.uid, context.view
        network = None if context.pod.spec.host_network else host.network
        if network is not None:
            await host.connect()
        if not view.sandbox or (
            network is not None and host.addresses.taken.get(uid) != view.pod_ip
        ):
            self.place(host.addresses.take(uid, view.pod_ip))
        if network is None:
            self.network_namespace = ""
            return
        containers = list(containers)
        pids = [
            container.instance.claim.pid
            for container in containers
            if container.instance is not None and container.instance.exit is None
        ]
        ports = [
            [port.host_ip, port.host_port, port.container_port]
            for container in containers
            for port in container.spec.ports
            if port.host_port and port.protocol in ("", "TCP")
        ]
        await host.isolated()
        self.network_namespace = await network.attach(uid, view.pod_ip, pids, ports)

    def place(self, address: str) -> None:
        """Make the pod's directory, take its address, and give it its names.  `address` is the one
        that it had, or is to have."""
        context = self._context
        host, view = context.host, context.view
        if context.pod.spec.host_network:
            address = HOST_ADDRESS
        self._record(address)
        view.pod_ip = (
            address if context.pod.spec.host_network else host.addresses.take(context.uid, address)
        )
        host.names.add(context.pod, view.pod_ip, context.directory)
        view.sandbox = True

    def disconnect(self) -> None:
        """The pods' network has been made anew: the pod must be connected again."""
        self.network_namespace = None

    def end(self) -> None:
        """The pod has ended and its object stays: nothing of it is named or connected any more."""
        context = self._context
        context.host.names.remove(context.uid)
        if context.host.network is not None and context.view.sandbox:
            self._leave_network()
            self._record("")

    def remove(self) -> None:
        """The pod is gone: nothing of it stays on this machine."""
        context = self._context
        context.host.names.remove(context.uid)
        self._leave_network()
        context.host.addresses.give_back(context.uid)
        context.directory.remove()

    def _leave_network(self) -> None:
        context = self._context
        network = context.host.network
        if network is None or context.pod.spec.host_network or not context.view.sandbox:
            return
        network.tell({"do": "detach", "uid": context.uid})
        context.host.addresses.give_back(context.uid)

    def _record(self, address: str) -> None:
        meta = self._context.pod.metadata
        node = self._context.pod.spec.node_name
        self._context.directory.make(PodRecord(meta.namespace, meta.name, meta.uid, node, address))
