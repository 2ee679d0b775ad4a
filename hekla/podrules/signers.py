"""Names of certificate signers: a path below a domain."""

from __future__ import annotations

from collections.abc import Callable

from hekla.api.text.fielderrors import invalid
from hekla.api.text.fieldrules import Errors
from hekla.api.text.quoting import quoted
from hekla.api.text.syntax import Reasons, dns_label, dns_subdomain

LONGEST_DOMAIN = 253
LONGEST_NAME = LONGEST_DOMAIN + 1 + 253 + 1 + 63


def of_kubernetes(name: str) -> bool:
    """Whether the name is reserved for Kubernetes."""
    domain = name.partition("/")[0]
    return domain == "kubernetes.io" or domain.endswith(".kubernetes.io")


def signer_name(name: str, path: str, found: Errors) -> None:
    if not name:
        found.required(path)
        return
    domain, slash, rest = name.partition("/")
    if not slash or "/" in rest:
        why = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        found.invalid(path, name, why)
        return
    if len(domain) > LONGEST_DOMAIN:
        found.too_long(path, LONGEST_DOMAIN)
    _labels(domain, dns_label, path, found)
    if "." not in domain:
        found.invalid(
            path, domain, "should be a domain with at least two segments separated by dots"
        )
    _labels(rest, dns_subdomain, path, found)
    if len(name) > LONGEST_NAME:
        found.too_long(path, LONGEST_NAME)


def _labels(text: str, grammar: Callable[[str], Reasons], path: str, found: Errors) -> None:
    """The reasons against the first invalid label of a domain."""
    for label in text.split("."):
        reasons = grammar(label)
        if reasons:
            found += [
                invalid(path, text, f"validating label {quoted(label)}: {reason}")
                for reason in reasons
            ]
            return
