"""Reviews: requests in the form of objects that are answered and not stored (SelfSubjectReview,
TokenReview, SubjectAccessReview and its relatives)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from hekla.api.trees import Json
from hekla.kube.http.server import Response
from hekla.local.apiserver.auth.access import Access
from hekla.local.apiserver.auth.authentication import Authenticator
from hekla.local.apiserver.auth.authorization import Authorizer
from hekla.local.apiserver.auth.tokens import ISSUER
from hekla.local.apiserver.auth.user import User
from hekla.local.apiserver.objects.new_objects import now
from hekla.local.apiserver.request.call import Call, decode_body
from hekla.local.apiserver.request.forms import not_acceptable
from hekla.local.apiserver.request.status import Refusal, bad_request
from hekla.local.apiserver.storage.registry import Registry
from hekla.local.apiserver.storage.rows import encode

AUTHENTICATION, AUTHORIZATION = "authentication.k8s.io", "authorization.k8s.io"
Handler = Callable[[Call], Awaitable[Response]]


class Reviews:
    """The handlers of all kinds of reviews."""

    def __init__(
        self, registry: Registry, authenticator: Authenticator, authorizer: Authorizer
    ) -> None:
        self.registry = registry
        self.authenticator = authenticator
        self.authorizer = authorizer
        self.handlers: dict[tuple[str, str], Handler] = {
            (AUTHENTICATION, "selfsubjectreviews"): self.self_subject,
            (AUTHENTICATION, "tokenreviews"): self.token,
            (AUTHORIZATION, "subjectaccessreviews"): self.subject_access,
            (AUTHORIZATION, "localsubjectaccessreviews"): self.subject_access,
            (AUTHORIZATION, "selfsubjectaccessreviews"): self.self_subject_access,
            (AUTHORIZATION, "selfsubjectrulesreviews"): self.self_subject_rules,
        }

    def _answer(self, call: Call, tree: Json, status: Json) -> Response:
        clauses = call.request.headers.get("accept", "").split(",")
        if all(";as=" in clause for clause in clauses):
            raise not_acceptable()  # a review has no row and no metadata
        tree["status"] = status
        tree.setdefault("metadata", {})
        return call.respond(201, encode(call.resource.typed(tree)))

    async def self_subject(self, call: Call) -> Response:
        """SelfSubjectReview: who the caller is."""
        tree = decode_body(call)
        tree.setdefault("metadata", {})["creationTimestamp"] = now()
        return self._answer(call, tree, {"userInfo": call.user.tree()})

    async def token(self, call: Call) -> Response:
        """TokenReview: whose token this is."""
        tree = decode_body(call)
        token = (tree.get("spec") or {}).get("token") or ""
        if not token:
            raise bad_request("token is required for TokenReview in authentication")
        wanted = list((tree.get("spec") or {}).get("audiences") or [])
        user = self.authenticator.verify(token, tuple(wanted))
        if user is None:
            return self._answer(call, tree, {"user": {}, "error": "invalid bearer token"})
        own = self.authenticator.audiences(token)
        audiences = [audience for audience in wanted if audience in own] if wanted else [ISSUER]
        return self._answer(
            call, tree, {"authenticated": True, "user": user.tree(), "audiences": audiences}
        )

    async def subject_access(self, call: Call) -> Response:
        """SubjectAccessReview and LocalSubjectAccessReview: whether a user may."""
        tree = decode_body(call)
        spec = tree.get("spec") or {}
        if not spec.get("user") and not spec.get("groups"):
            raise invalid_review(
                "spec.user", 'Invalid value: "": at least one of user or group must be specified'
            )
        namespace = call.route.namespace
        if (
            namespace
            and (spec.get("resourceAttributes") or {}).get("namespace", namespace) != namespace
        ):
            named = spec["resourceAttributes"]["namespace"]
            raise invalid_review(
                "spec.resourceAttributes.namespace",
                f'Invalid value: "{named}": must match metadata.namespace',
            )
        extra = {key: tuple(values) for key, values in (spec.get("extra") or {}).items()}
        user = User(
            spec.get("user") or "", tuple(spec.get("groups") or ()), spec.get("uid") or "", extra
        )
        return self._answer(call, tree, self._verdict(user, spec, call.route.namespace))

    async def self_subject_access(self, call: Call) -> Response:
        """SelfSubjectAccessReview: whether the caller may."""
        tree = decode_body(call)
        return self._answer(call, tree, self._verdict(call.user, tree.get("spec") or {}, ""))

    def _verdict(self, user: User, spec: Json, namespace: str) -> Json:
        wanted = spec.get("resourceAttributes")
        paths = spec.get("nonResourceAttributes")
        if (wanted is None) == (paths is None):
            which = "null" if wanted is None else "{}"
            text = f"Invalid value: {which}: exactly one of nonResourceAttributes or resourceAttributes must be specified"
            raise invalid_review("spec.resourceAttributes", text)
        if wanted is not None:
            access = Access(
                wanted.get("verb") or "",
                wanted.get("group") or "",
                wanted.get("resource") or "",
                wanted.get("subresource") or "",
                wanted.get("namespace") or namespace,
                wanted.get("name") or "",
                node=selected_node(wanted.get("fieldSelector") or {}),
            )
        else:
            access = Access((paths or {}).get("verb") or "", path=(paths or {}).get("path") or "")
        allowed, reason = self.authorizer.allows(user, access)
        return {"allowed": allowed, "reason": reason} if reason else {"allowed": allowed}

    async def self_subject_rules(self, call: Call) -> Response:
        """SelfSubjectRulesReview: all rules of the caller in a namespace."""
        tree = decode_body(call)
        namespace = (tree.get("spec") or {}).get("namespace") or ""
        if not namespace:
            raise bad_request("no namespace on request")
        rules = self.authorizer.rules_of(call.user, namespace)
        resources = [rule for rule in rules if rule.get("resources")]
        paths = [
            {"verbs": rule.get("verbs"), "nonResourceURLs": rule["nonResourceURLs"]}
            for rule in rules
            if rule.get("nonResourceURLs")
        ]
        tree["spec"] = {}
        status: Json = {
            "resourceRules": resources,
            "nonResourceRules": paths,
            "incomplete": call.user.node is not None,
        }
        if call.user.node is not None:
            status["evaluationError"] = "node authorizer does not support user rule resolution"
        return self._answer(call, tree, status)


def selected_node(selector: Json) -> str:
    """The only node whose objects the field selector of a review matches."""
    for term in selector.get("requirements") or ():
        if (term.get("key"), term.get("operator")) == ("spec.nodeName", "In") and len(
            term.get("values") or ()
        ) == 1:
            return str(term["values"][0])
    for term in (selector.get("rawSelector") or "").split(","):
        field, equals, value = term.partition("=")
        if equals and field.strip() == "spec.nodeName":
            return str(value).removeprefix("=").strip()
    return ""


def invalid_review(field: str, text: str) -> Refusal:
    """The error for an invalid review, whose message does not name the kind."""
    cause = {"reason": "FieldValueInvalid", "message": text, "field": field}
    details = {"group": AUTHORIZATION, "causes": [cause]}
    return Refusal(422, f'.{AUTHORIZATION} "" is invalid: {field}: {text}', details=details)
