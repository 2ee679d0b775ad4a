"""The differences from Kubernetes that are intended.  Everything else that differs is a mistake of
ours.

One row a difference: where it shows, and why it is wanted.  A row that no request meets any more
must go.
"""

from __future__ import annotations

import re
from typing import NamedTuple

REVIEWS = r"POST \S+reviews"


class Intention(NamedTuple):
    """A difference that is wanted."""

    request: str
    """An expression that the request's line begins with."""
    place: str
    """An expression for the whole place."""
    why: str
    reference: str = ""
    """An expression that the reference server's side begins with."""
    ours: str = ""
    """The same of ours."""

    def covers(self, request: str, place: str, reference: str, ours: str) -> bool:
        return (
            re.match(self.request, request) is not None
            and re.fullmatch(self.place, place) is not None
            and re.match(self.reference, reference) is not None
            and re.match(self.ours, ours) is not None
        )


INTENDED: tuple[Intention, ...] = (
    Intention(
        "", r".*\.?columnDefinitions\[.*\]\.description", "Descriptions are in words of our own."
    ),
    Intention(
        "GET /version",
        r"\.(compiler|gitCommit|gitVersion|goVersion|buildDate|gitTreeState|platform)",
        "Hekla says that it is Hekla.",
    ),
    Intention(
        "",
        "status",
        "What the client did wrong is no failure of the server: 5xx here is 4xx with us.",
        r"500 ",
        r"4\d\d ",
    ),
    Intention(
        "BREW",
        ".*",
        "The HTTP parser knows the methods of the protocol and refuses others before anything looks at them.",
    ),
    Intention(
        ".*accept application/vnd.kubernetes.protobuf",
        ".*",
        "Answers are JSON; every client that asks for protobuf takes JSON as well.",
    ),
    Intention(
        r"\S+ \S+/events\b",
        r".*\.(eventTime|(first|last)Timestamp|source|reporting(Component|Instance))",
        "An event keeps the bytes that it came in: what says nothing would be a fifth of the memory of what there are most of.",
        r'(null|"?"?|\{\})$',
        "<absent>",
    ),
    Intention(
        r"\S+ \S+/flowschemas\b",
        r"(.*\.)?(metadata\.managedFields|status|rows\[.*\]\.cells)\b.*",
        "The server's own flow control writes a condition in its own time; Hekla queues no requests, so nobody writes.",
    ),
    Intention(
        r"\S+ \S+/resourcequotas\b",
        r"(.*\.)?(metadata\.managedFields|status\.(hard|used)|rows\[.*\]\.cells)\b.*",
        "Our server counts what a quota is about itself, also where no controller runs, as in this comparison.",
    ),
    Intention(
        r"\S+ \S+/validatingadmissionpolicies\b",
        r"(.*\.)?(metadata\.managedFields|status\.(observedGeneration|typeChecking))\b.*",
        "Our server checks the types of a policy itself, also where no controller runs, as in this comparison.",
    ),
    Intention(
        "",
        r".*\.?message",
        "A refused value is shown as the API writes it, not as Go keeps it inside.",
        r'(?s).*(Invalid|Unsupported|Duplicate) value: \[?\{"([A-Z]|labels":.*"Spec":)',
    ),
    Intention(
        "",
        r".*\.?message",
        "An empty map, list or text is kept as none, and shown as that where it is refused.",
        r'(?s).*(Invalid|Unsupported) value: (\{\}|""|\[\]): (`selector` does not|supported values|PEM block|either `)',
        r"(?s).*(Invalid|Unsupported) value: null: ",
    ),
    Intention(
        r"\S+ \S+/((cluster)?roles|limitranges|endpointslices|resourceclaims|resourceclaimtemplates)\b",
        r".*metadata\.managedFields.*",
        "An empty list is kept as none, so nobody comes to own it.",
    ),
    Intention(
        "",
        r".*\.?message",
        "What a pod's update may not change is named, not shown as a difference of Go's structures.",
        r"(?s).*Forbidden: pod updates may not change fields.*@@ -",
        r"(?s).*Forbidden: pod updates may not change fields.*changed: ",
    ),
    Intention(
        "",
        r".*\.conditions\[.*\]\.last(Probe|Transition)Time|.*\.containerStatuses\[.*\]\.(lastState|state\.running\.startedAt)",
        "A status keeps the bytes that its writer sent: what says nothing would be a tenth of the memory of a pod.",
        r"(null|\{\})$",
        "<absent>",
    ),
    Intention(
        r"POST \S+(reviews|/token)\b",
        r"\.metadata\.managedFields",
        "What is answered and not kept has no fields to own.",
        "",
        "<absent>",
    ),
    Intention(
        r"GET /apis\b",
        r".*\[admissionregistration\.k8s\.io\]\.versions\[1\]|\.versions\[1\]",
        "Mutating policies are served in v1beta1 too, for the clients that know them from there.",
        "<absent>",
    ),
    Intention(
        r"GET /api$",
        r"\.serverAddressByClientCIDRs\[.*\]",
        "A server on loopback has no address for clients elsewhere.",
        "",
        "<absent>",
    ),
    Intention(
        r"(GET|PUT|PATCH) \S+/daemonsets\b",
        r".*\.managedFields.*",
        "The same annotation: a status does not come to own it here.",
        r"(.*(f:annotations|deprecated\.daemonset)|\{\}$)",
    ),
    Intention(
        r"PATCH ",
        "header warning",
        "Kubernetes warns of a directive that it has left in an element that is new (or that its cache does not have yet).",
        r".*unknown field .*\$retainKeys",
        "<absent>",
    ),
    Intention(
        r"(POST|PUT|PATCH) \S+/csinodes\b",
        "status",
        "A CSINode has a status here, as in the Kubernetes after this one.",
        "(200|201|404|409|422) ",
        "4.. .*CSINodeStatus",
    ),
    Intention(
        r"(POST|PUT|PATCH) \S+/csinodes\b",
        "header warning",
        "The same status: nobody is warned of it.",
        r'.*unknown field \\"status',
    ),
    Intention(
        r"(POST|PUT|PATCH) \S+/csinodes\b",
        r"\.(status|metadata\.managedFields\[.*\]\.fieldsV1\.f:status)",
        "The same status: it is kept.",
        "<absent>",
    ),
    Intention(
        r"PATCH .*strategic-merge",
        "status",
        "A number that does not fit is refused, not cut to its last bits and stored.",
        "200 ",
        r"422 .*cannot unmarshal number \d{10,}",
    ),
    Intention(
        r"PATCH .*strategic-merge",
        r".*\.(field|message|kind|name)",
        "The same number, where Kubernetes refuses what it was cut to.",
        "",
        r"(?s)(patch$|<absent>$|.*cannot unmarshal number \d{10,})",
    ),
    Intention(
        r"\S+ \S+/controllerrevisions\b",
        r".*\.?message",
        "Data of free form is shown as it is kept, not as its writer escaped it.",
        r".*\\u00",
    ),
    Intention(
        r"GET \S+/resourceclaims/\S+/status accept application/json;as=Table",
        "status",
        "The status of a claim is shown in a table too.",
        "406 ",
        "(200|404) ",
    ),
    Intention(
        r"PATCH .*strategic-merge",
        "status",
        "A key that is no text is refused; Kubernetes breaks off the connection.",
        "0 ",
        r"422 .*unrecognized type: string",
    ),
    Intention(
        r"(PATCH|GET|PUT|DELETE) \S+webhookconfigurations\b",
        r".*\.metadata\.generation",
        "An apply of an empty list is no change; Kubernetes counts one, since its structures tell no list from an empty one.",
    ),
    Intention(
        r"(PUT|PATCH) \S+/(services|validatingadmissionpolicies)/\S+/status",
        "status",
        "A status makes no object; Kubernetes makes a service that has no address, and a policy.",
        "201 |400 the name of the object",
        "404 ",
    ),
    Intention(
        r"POST \S+/services\b",
        r".*\.(message|field|reason)",
        "A service without a name is told so, not that the record of its address could not be made for want of it.",
        r"(?s)(spec\.clusterIPs$|FieldValueInvalid$|.*failed to allocate IP: .*spec\.parentRef\.name: Required value)",
        r"(metadata\.name$|FieldValueRequired$|.*name or generateName is required)",
    ),
    Intention(
        r"POST \S+webhookconfigurations\b",
        r".*\.(message|field)",
        "Kubernetes takes the name of a webhook's service for its namespace here and names the one that is there as missing.",
        r".*clientConfig\.service\.name\b",
        r".*clientConfig\.service\.namespace\b",
    ),
    Intention(
        "",
        r".*\.?message",
        "What may not change is told, not shown as a difference of Go's structures.",
        r"(?s).*Forbidden: spec(\.persistentvolumesource)? is immutable after creation.*@@ -",
        r".*Forbidden: spec(\.persistentvolumesource)? is immutable after creation[^@]*$",
    ),
)
