"""How often webhooks and policies were asked and what came of it, under the names that Kubernetes'
dashboards look for."""

from __future__ import annotations

from hekla.local.apiserver.admission.policies.policies import Policies
from hekla.local.apiserver.admission.webhooks import Webhooks
from hekla.local.apiserver.request.metrics import BUCKETS, Histogram, title

WEBHOOK = "apiserver_admission_webhook"


def lines_of(webhooks: Webhooks, policies: Policies) -> list[str]:
    """Lines of the metrics page; none on a server without webhooks and policies."""
    lines: list[str] = []
    if webhooks.calls:
        title(lines, f"{WEBHOOK}_request_total", "counter", "Calls of webhooks, by their answer.")
        for call, durations in sorted(webhooks.calls.items()):
            lines.append(f"{WEBHOOK}_request_total{{{_labels(call)}}} {sum(durations.counts)}")
        title(
            lines,
            f"{WEBHOOK}_admission_duration_seconds",
            "histogram",
            "Time that calls of webhooks took.",
        )
        for call, durations in sorted(webhooks.calls.items()):
            _histogram(lines, _labels(call), durations)
    if webhooks.rejections:
        title(
            lines,
            f"{WEBHOOK}_rejection_count",
            "counter",
            "Requests that webhooks refused, or that failed with them.",
        )
        for (name, kind, operation, error, code), count in sorted(webhooks.rejections.items()):
            labels = f'error_type="{error}",name="{name}",operation="{operation}",rejection_code="{code}",type="{kind}"'
            lines.append(f"{WEBHOOK}_rejection_count{{{labels}}} {count}")
    if webhooks.failed_open:
        title(lines, f"{WEBHOOK}_fail_open_count", "counter", "Calls that failed and were ignored.")
        for (name, kind), count in sorted(webhooks.failed_open.items()):
            lines.append(f'{WEBHOOK}_fail_open_count{{name="{name}",type="{kind}"}} {count}')
    decisions = policies.validating.decisions
    if decisions:
        name = "apiserver_validating_admission_policy_check_total"
        title(lines, name, "counter", "Failed validations of policies, by what was done.")
        for (policy, binding, action), count in sorted(decisions.items()):
            labels = f'enforcement_action="{action}",error_type="no_error",policy="{policy}",policy_binding="{binding}"'
            lines.append(f"{name}{{{labels}}} {count}")
    return lines


def _labels(call: tuple[str, str, str, int, bool]) -> str:
    name, kind, operation, status, rejected = call
    return f'code="{status}",name="{name}",operation="{operation}",rejected="{str(rejected).lower()}",type="{kind}"'


def _histogram(lines: list[str], labels: str, durations: Histogram) -> None:
    total = 0
    for limit, count in zip((*map(str, BUCKETS), "+Inf"), durations.counts):
        total += count
        lines.append(
            f'{WEBHOOK}_admission_duration_seconds_bucket{{{labels},le="{limit}"}} {total}'
        )
    lines.append(f"{WEBHOOK}_admission_duration_seconds_sum{{{labels}}} {durations.sum:.6f}")
    lines.append(f"{WEBHOOK}_admission_duration_seconds_count{{{labels}}} {total}")
