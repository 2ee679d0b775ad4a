"""NodeRestriction: what a node writes is about itself and the pods that are bound to it
(local-cluster 6.1, 7.2).

The authorizer lets a node write nodes, pods and their statuses, because it does not see what is in
a request; here that is seen.
"""

from __future__ import annotations

from collections.abc import Iterable

from hekla.api.names import MIRROR_POD
from hekla.api.trees import Json
from hekla.local.apiserver.admission.attributes import Attributes
from hekla.local.apiserver.admission.certificates import subject_of
from hekla.local.apiserver.auth.access import Access
from hekla.local.apiserver.auth.authorization import Authorizer
from hekla.local.apiserver.auth.nodegraph import config_maps_of, secrets_of
from hekla.local.apiserver.auth.nodes import LEASES
from hekla.local.apiserver.objects.encoding.go_text import quoted
from hekla.local.apiserver.request.status import Refusal, forbidden, not_found
from hekla.local.apiserver.storage.registry import Registry

OWN_LABELS = {
    "kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
    "topology.kubernetes.io/zone", "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region", "node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type",
}  # fmt: skip
"""Of Kubernetes' labels those that a node says of itself."""
OWN_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
RESTRICTED = "node-restriction.kubernetes.io"
NODE_SIGNERS = ("kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet")
RESIZING = ("capacity", "conditions", "allocatedResourceStatuses", "allocatedResources")
"""What a node says of a claim."""
LOCAL_VOLUMES = {
    "awsElasticBlockStore", "azureDisk", "cephfs", "cinder", "downwardAPI", "emptyDir", "fc", "flexVolume", "flocker",
    "gcePersistentDisk", "gitRepo", "hostPath", "image", "iscsi", "nfs", "photonPersistentDisk", "portworxVolume", "quobyte", "rbd",
    "scaleIO", "storageos", "vsphereVolume",
}  # fmt: skip
"""Kinds of volumes that are no object's of the API."""
LEADING_VOLUMES = {
    "configMap": "configmaps (via configmap volumes)", "secret": "secrets (via secret volumes)", "csi": "csidrivers (via CSI volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)", "persistentVolumeClaim": "persistentvolumeclaims",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)", "azureFile": "secrets (via azureFile volumes)",
}  # fmt: skip
LEADING_SOURCES = {
    "configMap": "configmaps (via projected volumes)", "secret": "secrets (via projected volumes)",
    "serviceAccountToken": "serviceaccounts (via projected volumes)", "clusterTrustBundle": "clustertrustbundles",
    "podCertificate": "podcertificates",
}  # fmt: skip


class NodeRestriction:
    """The admission plugin; only requests of nodes come here."""

    def __init__(self, registry: Registry, authorizer: Authorizer) -> None:
        self.registry = registry
        self.authorizer = authorizer

    def admit(self, attributes: Attributes) -> None:
        """Raises 403 for what is another's, 404 for what is not there."""
        node = attributes.call.user.node
        if node is None:
            return
        if not node:
            raise refused(
                attributes,
                f"could not determine node from user {quoted(attributes.call.user.name)}",
            )
        match attributes.resource.collection.name, attributes.subresource:
            case "pods", "":
                self._pod(node, attributes)
            case "pods", "status":
                self._pod_status(node, attributes)
            case "pods", "eviction":
                if self._node_of(attributes, attributes.name) != node:
                    raise refused(
                        attributes,
                        f"node {node} can only evict pods with spec.nodeName set to itself",
                    )
            case "pods", other:
                why = f"unexpected pod subresource {quoted(other)}, only 'status' and 'eviction' are allowed"
                raise refused(attributes, why)
            case "nodes", _:
                self._node(node, attributes)
            case "persistentvolumeclaims", what:
                self._claim(node, what, attributes)
            case "serviceaccounts", "token":
                self._token(node, attributes)
            case "leases.coordination.k8s.io", _:
                if attributes.namespace != LEASES:
                    raise refused(
                        attributes, f'can only access leases in the "{LEASES}" system namespace'
                    )
                if attributes.name != node:
                    raise refused(
                        attributes,
                        "can only access node lease with the same name as the requesting node",
                    )
            case "csinodes.storage.k8s.io", _:
                if attributes.name != node:
                    raise refused(
                        attributes,
                        "can only access CSINode with the same name as the requesting node",
                    )
            case "resourceslices.resource.k8s.io", _:
                self._slice(node, attributes)
            case "certificatesigningrequests.certificates.k8s.io", "":
                self._request(node, attributes)

    # --- pods -------------------------------------------------------------------------------------

    def _pod(self, node: str, attributes: Attributes) -> None:
        if attributes.operation == "DELETE":
            if ((attributes.old or {}).get("spec") or {}).get("nodeName") != node:
                raise refused(
                    attributes,
                    f"node {quoted(node)} can only delete pods with spec.nodeName set to itself",
                )
            return
        if attributes.operation != "CREATE":
            why = f"unexpected operation {quoted(attributes.operation)}, node {quoted(node)} can only create and delete mirror pods"
            raise refused(attributes, why)
        pod = attributes.object or {}
        metadata, spec = pod["metadata"], pod.get("spec") or {}
        if MIRROR_POD not in (metadata.get("annotations") or {}):
            why = f"pod does not have {quoted(MIRROR_POD)} annotation, node {quoted(node)} can only create mirror pods"
            raise refused(attributes, why)
        if spec.get("nodeName") != node:
            raise refused(
                attributes,
                f"node {quoted(node)} can only create pods with spec.nodeName set to itself",
            )
        self._owner(node, metadata.get("ownerReferences") or [], attributes)
        what = leads_to(spec)
        if what:
            raise refused(
                attributes, f"node {quoted(node)} can not create pods that reference {what}"
            )

    def _owner(self, node: str, owners: list[Json], attributes: Attributes) -> None:
        """A mirror pod goes with its node."""
        if len(owners) > 1:
            raise refused(
                attributes,
                f"node {quoted(node)} can only create pods with a single owner reference set to itself",
            )
        owner = owners[0] if owners else {}
        if (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) != ("v1", "Node", node):
            raise refused(
                attributes,
                f"node {quoted(node)} can only create pods with an owner reference set to itself",
            )
        if not owner.get("controller"):
            raise refused(
                attributes,
                f"node {quoted(node)} can only create pods with a controller owner reference set to itself",
            )
        if owner.get("blockOwnerDeletion"):
            raise refused(
                attributes,
                f"node {quoted(node)} must not set blockOwnerDeletion on an owner reference",
            )
        nodes = self.registry["nodes"]
        row = nodes.collection.newest(node)
        if row is None:
            raise not_found(nodes.kind, node)
        if owner.get("uid") != row.uid:
            raise refused(
                attributes, f"node {node} UID mismatch: expected {owner.get('uid')} got {row.uid}"
            )

    def _pod_status(self, node: str, attributes: Attributes) -> None:
        old, new = attributes.old or {}, attributes.object or {}
        if (old.get("spec") or {}).get("nodeName") != node:
            raise refused(
                attributes,
                f"node {quoted(node)} can only update pod status for pods with spec.nodeName set to itself",
            )
        if (old["metadata"].get("labels") or {}) != (new["metadata"].get("labels") or {}):
            raise refused(
                attributes, f"node {quoted(node)} cannot update labels through pod status"
            )
        before, after = old.get("status") or {}, new.get("status") or {}
        if (before.get("resourceClaimStatuses") or []) != (
            after.get("resourceClaimStatuses") or []
        ):
            raise refused(attributes, f"node {quoted(node)} cannot update resource claim statues")
        if (before.get("extendedResourceClaimStatus") or {}) != (
            after.get("extendedResourceClaimStatus") or {}
        ):
            raise refused(
                attributes, f"node {quoted(node)} cannot update extended resource claim status"
            )

    def _node_of(self, attributes: Attributes, name: str) -> str:
        pods = self.registry["pods"]
        row = pods.collection.newest(f"{attributes.namespace}/{name}")
        if row is None:
            raise not_found(pods.kind, name)
        return str(row.fields[pods.collection.positions["spec.nodeName"]] or "")

    # --- the node itself --------------------------------------------------------------------------

    def _node(self, node: str, attributes: Attributes) -> None:
        if attributes.name != node:
            raise refused(
                attributes,
                f"node {quoted(node)} is not allowed to modify node {quoted(attributes.name)}",
            )
        new, old = attributes.object, attributes.old or {"metadata": {}}
        if new is None:
            return
        spec, before = new.get("spec") or {}, old.get("spec") or {}
        creating = attributes.operation == "CREATE"
        if spec.get("configSource") and (
            creating or spec["configSource"] != before.get("configSource")
        ):
            why = (
                "to create pods with a non-nil configSource"
                if creating
                else "to update configSource to a new non-nil configSource"
            )
            raise refused(attributes, f"node {quoted(node)} is not allowed {why}")
        if not creating:
            if (spec.get("taints") or []) != (before.get("taints") or []):
                raise refused(attributes, f"node {quoted(node)} is not allowed to modify taints")
            if (new["metadata"].get("ownerReferences") or []) != (
                old["metadata"].get("ownerReferences") or []
            ):
                raise refused(
                    attributes, f"node {quoted(node)} is not allowed to modify ownerReferences"
                )
        labels, had = new["metadata"].get("labels") or {}, old["metadata"].get("labels") or {}
        wrong = sorted(
            filter(reserved, (key for key in {*labels, *had} if labels.get(key) != had.get(key)))
        )
        if wrong:
            what = (
                f"node {quoted(node)} is not allowed to set the following"
                if creating
                else "is not allowed to modify"
            )
            raise refused(attributes, f"{what} labels: {', '.join(wrong)}")

    def _slice(self, node: str, attributes: Attributes) -> None:
        verb = {"CREATE": "create", "DELETE": "delete"}.get(attributes.operation)
        about = attributes.object if attributes.operation == "CREATE" else attributes.old
        if verb is not None and ((about or {}).get("spec") or {}).get("nodeName") != node:
            raise refused(
                attributes,
                f"can only {verb} ResourceSlice with the same NodeName as the requesting node",
            )

    def _request(self, node: str, attributes: Attributes) -> None:
        request = attributes.object or {}
        if (
            attributes.operation != "CREATE"
            or (request.get("spec") or {}).get("signerName") not in NODE_SIGNERS
        ):
            return
        try:
            subject = subject_of(request)
        except ValueError as error:
            raise refused(attributes, f"unable to parse csr: {error}") from error
        if subject.common_name != f"system:node:{node}":
            raise refused(attributes, f"can only create a node CSR with CN=system:node:{node}")

    # --- what pods use ----------------------------------------------------------------------------

    def _claim(self, node: str, subresource: str, attributes: Attributes) -> None:
        if subresource != "status":
            raise refused(attributes, "may only update PVC status")
        old, new = ({**(tree or {})} for tree in (attributes.old, attributes.object))
        for tree in (old, new):
            tree["status"] = {
                name: value
                for name, value in (tree.get("status") or {}).items()
                if name not in RESIZING
            }
            tree["metadata"] = {
                name: value
                for name, value in (tree.get("metadata") or {}).items()
                if name not in ("managedFields", "resourceVersion")
            }
        if old != new:
            why = f"node {quoted(node)} is not allowed to update fields other than status.quantity and status.conditions"
            raise refused(attributes, why)

    def _token(self, node: str, attributes: Attributes) -> None:
        spec: Json = (attributes.object or {}).get("spec") or {}
        reference = spec.get("boundObjectRef") or {}
        if (reference.get("apiVersion"), reference.get("kind")) != (
            "v1",
            "Pod",
        ) or not reference.get("name"):
            raise refused(attributes, "node requested token not bound to a pod")
        if not reference.get("uid"):
            raise refused(attributes, "node requested token with a pod binding without a uid")
        pods = self.registry["pods"]
        row = pods.collection.newest(f"{attributes.namespace}/{reference['name']}")
        if row is None:
            raise not_found(pods.kind, str(reference["name"]))
        if row.uid != reference["uid"]:
            why = f"the UID in the bound object reference ({reference['uid']}) does not match the UID in record. "
            raise refused(attributes, why + "The object might have been deleted and then recreated")
        if row.fields[pods.collection.positions["spec.nodeName"]] != node:
            raise refused(
                attributes, "node requested token bound to a pod scheduled on a different node"
            )
        self._audience(attributes, spec.get("audiences") or [], row.tree())

    def _audience(self, attributes: Attributes, audiences: list[str], pod: Json) -> None:
        """A token is for whom a volume of the pod is for, or for whom a role lets nodes ask."""
        if len(audiences) > 1:
            raise refused(attributes, "node may only request 0 or 1 audiences")
        wanted, user = "".join(audiences), attributes.call.user
        if wanted in self._audiences_of(pod):
            return
        access = Access(
            "request-serviceaccounts-token-audience",
            "",
            wanted,
            "",
            attributes.namespace,
            attributes.name,
        )
        if not self.authorizer.allows(user, access)[0]:
            why = (
                f"audience {quoted(wanted)} not found in pod spec volume, "
                f"{user.name} is not authorized to request tokens for this audience"
            )
            raise refused(attributes, why)

    def _audiences_of(self, pod: Json) -> Iterable[str]:
        for volume in (pod.get("spec") or {}).get("volumes") or ():
            for source in (volume.get("projected") or {}).get("sources") or ():
                if source.get("serviceAccountToken") is not None:
                    yield source["serviceAccountToken"].get("audience") or ""
            driver = self.authorizer.nodes.graph.object(
                "storage.k8s.io", "csidrivers", self._driver(pod, volume)
            )
            for request in ((driver or {}).get("spec") or {}).get("tokenRequests") or ():
                yield request.get("audience") or ""

    def _driver(self, pod: Json, volume: Json) -> str:
        """The name of the CSI driver of a volume of a pod."""
        if volume.get("csi") is not None:
            return str(volume["csi"].get("driver") or "")
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName") or ""
        if volume.get("ephemeral") is not None:
            claim = f"{pod['metadata']['name']}-{volume.get('name')}"
        graph = self.authorizer.nodes.graph
        found = (
            graph.object("", "persistentvolumeclaims", f"{pod['metadata']['namespace']}/{claim}")
            if claim
            else None
        )
        there = graph.object(
            "", "persistentvolumes", ((found or {}).get("spec") or {}).get("volumeName") or ""
        )
        return str((((there or {}).get("spec") or {}).get("csi") or {}).get("driver") or "")


def refused(attributes: Attributes, why: str) -> Refusal:
    return forbidden(attributes.resource.kind, attributes.name, why)


def reserved(label: str) -> bool:
    """Whether a label is not for a node to say of itself: it would steer other people's pods to the
    node."""
    domain, slash, _ = label.partition("/")
    if not slash:
        return False
    if below(domain, RESTRICTED):
        return True
    ours = below(domain, "kubernetes.io") or below(domain, "k8s.io")
    return ours and label not in OWN_LABELS and not any(below(domain, own) for own in OWN_DOMAINS)


def below(domain: str, parent: str) -> bool:
    return domain == parent or domain.endswith(f".{parent}")


def leads_to(spec: Json) -> str:
    """The first other objects that a pod names; empty for one that stands alone."""
    if spec.get("serviceAccountName"):
        return "serviceaccounts"
    for what, names in (("secrets", secrets_of(spec)), ("configmaps", config_maps_of(spec))):
        if any(names):
            return what
    if spec.get("resourceClaims"):
        return "resourceclaims"
    for volume in spec.get("volumes") or ():
        kinds = [kind for kind in volume if kind != "name"]
        for kind in kinds:
            if kind in LEADING_VOLUMES:
                return LEADING_VOLUMES[kind]
            if kind == "projected":
                sources = [key for source in volume[kind].get("sources") or () for key in source]
                found = next(
                    (LEADING_SOURCES.get(key, key) for key in sources if key != "downwardAPI"), ""
                )
                if found:
                    return found
            elif kind not in LOCAL_VOLUMES:
                return str(kind)
    return ""
