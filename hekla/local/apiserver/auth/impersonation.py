"""Impersonation: the Impersonate- headers, each of which the caller must have the right to use
(local-cluster 7.1)."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

from hekla.kube.http.server import Request
from hekla.local.apiserver.auth.access import Access
from hekla.local.apiserver.auth.authorization import Authorizer
from hekla.local.apiserver.auth.user import ANONYMOUS, AUTHENTICATED, SERVICE_ACCOUNT, User
from hekla.local.apiserver.objects import names
from hekla.local.apiserver.objects.encoding.go_text import quoted
from hekla.local.apiserver.request.status import bad_request, unsniffed

GROUP = "authentication.k8s.io"
EXTRA = "impersonate-extra-"
UNAUTHENTICATED = "system:unauthenticated"


def _requested(headers: Mapping[str, str]) -> str:
    """The impersonated user as Kubernetes prints it."""
    groups = [
        text.strip() for text in headers.get("impersonate-group", "").split(",") if text.strip()
    ]
    extra = {
        unquote(key.removeprefix(EXTRA)).lower(): text.split(",")
        for key, text in headers.items()
        if key.startswith(EXTRA)
    }
    shown = (
        f"{{{', '.join(f'{quoted(key)}:{_texts(extra[key])}' for key in sorted(extra))}}}"
        if extra
        else "(nil)"
    )
    uid = quoted(headers.get("impersonate-uid", ""))
    return f'&user.DefaultInfo{{Name:"", UID:{uid}, Groups:{_texts(groups)}, Extra:map[string][]string{shown}}}'


def _texts(values: list[str]) -> str:
    return (
        f"[]string{{{', '.join(quoted(value.strip()) for value in values)}}}"
        if values
        else "[]string(nil)"
    )


def impersonates(headers: Mapping[str, str]) -> bool:
    """Whether a request has impersonation headers."""
    return (
        "impersonate-user" in headers
        or "impersonate-group" in headers
        or "impersonate-uid" in headers
    )


def impersonated(authorizer: Authorizer, request: Request, user: User) -> User:
    """The user that the headers name, or the caller if there are none. Raises a 403 if the caller
    may not impersonate that user."""
    headers = request.headers
    name = headers.get("impersonate-user")
    if not name:
        if any(key.startswith("impersonate-") for key in headers):
            raise unsniffed(
                bad_request(f"requested {_requested(headers)} without impersonating a user name")
            )
        return user
    namespace, account = account_of(name)
    if account:
        authorizer.check(
            user, Access("impersonate", "", "serviceaccounts", namespace=namespace, name=account)
        )
    else:
        authorizer.check(user, Access("impersonate", "", "users", name=name))
    groups = tuple(
        text.strip() for text in headers.get("impersonate-group", "").split(",") if text.strip()
    )
    for group in groups:
        authorizer.check(user, Access("impersonate", "", "groups", name=group))
    uid = headers.get("impersonate-uid", "")
    if uid:
        authorizer.check(user, Access("impersonate", GROUP, "uids", name=uid))
    extra: dict[str, tuple[str, ...]] = {}
    for key, text in headers.items():
        if key.startswith(EXTRA):
            what = unquote(key.removeprefix(EXTRA)).lower()
            values = tuple(value.strip() for value in text.split(","))
            for value in values:
                authorizer.check(user, Access("impersonate", GROUP, "userextras", what, name=value))
            extra[what] = values
    if account and not groups:
        groups = (f"{SERVICE_ACCOUNT[:-1]}s", f"{SERVICE_ACCOUNT[:-1]}s:{namespace}")
    if name != ANONYMOUS:
        groups = (
            groups
            if AUTHENTICATED in groups or UNAUTHENTICATED in groups
            else (*groups, AUTHENTICATED)
        )
    elif UNAUTHENTICATED not in groups:
        groups = (*groups, UNAUTHENTICATED)
    return User(name, groups, uid, extra)


def account_of(name: str) -> tuple[str, str]:
    """(namespace, name) of the service account that a user is; both are empty for any other user."""
    parts = (
        name.removeprefix(SERVICE_ACCOUNT).split(":") if name.startswith(SERVICE_ACCOUNT) else []
    )
    if len(parts) == 2 and not names.dns_label(parts[0]) and not names.dns_subdomain(parts[1]):
        return parts[0], parts[1]
    return "", ""
