"""Which admission webhooks may change what KubeShare writes."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubeshare.api.predicates.node_affinity import holds
from kubeshare.api.types.constants import GROUP, LABEL_ROLE, ROLE_PLACEHOLDER

_PLACEHOLDER: Final = {LABEL_ROLE: ROLE_PLACEHOLDER}


def changes_placeholders(webhook: Mapping[str, Any], namespace_labels: Mapping[str, str]) -> bool:
    """Whether a mutating webhook gets the pods that KubeShare creates in its own namespace.

    Its match conditions are not evaluated: they may except these pods.

    Args:
        webhook: an entry of a MutatingWebhookConfiguration.
        namespace_labels: those of KubeShare's namespace.
    """
    return (
        _meets(namespace_labels, webhook.get("namespaceSelector"))
        and _meets(_PLACEHOLDER, webhook.get("objectSelector"))
        and _has_rule(webhook, "", "pods", {"CREATE", "*"})
    )


def changes_own_kinds(webhook: Mapping[str, Any], plurals: Iterable[str]) -> bool:
    """Whether a mutating webhook gets objects of KubeShare's own kinds."""
    return any(_has_rule(webhook, GROUP, plural, {"CREATE", "UPDATE", "*"}) for plural in plurals)


def _has_rule(webhook: Mapping[str, Any], group: str, plural: str, operations: set[str]) -> bool:
    return any(
        {group, "*"} & set(rule.get("apiGroups") or ())
        and {plural, "*", "*/*"} & set(rule.get("resources") or ())
        and operations & set(rule.get("operations") or ())
        for rule in webhook.get("rules") or ()
    )


def _meets(labels: Mapping[str, str], selector: Mapping[str, Any] | None) -> bool:
    """Whether a label selector selects; none selects all."""
    wanted = (selector or {}).get("matchLabels") or {}
    requirements = (selector or {}).get("matchExpressions") or ()
    return wanted.items() <= labels.items() and all(holds(labels, each) for each in requirements)
