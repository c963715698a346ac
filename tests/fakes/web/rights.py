"""The rights of users who look at a cluster."""

from typing import Any

from kubeshare.simulator.control import Authorizer

NAMESPACED = (
    ("kubeshare.nthu", ("sharepods", "gpuquotas", "shareusages")),
    ("", ("pods", "resourcequotas")),
    ("events.k8s.io", ("events",)),
)
CLUSTER = (("kubeshare.nthu", ("vgpus", "gpunodes")), ("", ("nodes",)))


def rights(namespace: str, *, cluster: bool = False) -> Authorizer:
    """Those of the role `view` in one namespace, and with ``cluster`` of who may see the GPUs."""
    verbs = ["get", "list", "watch"]
    manifests: list[dict[str, Any]] = []

    def grant(kind: str, where: str, groups: tuple[tuple[str, tuple[str, ...]], ...]) -> None:
        metadata = {"name": "r", "namespace": where}
        rules = [
            {"apiGroups": [group], "resources": list(plurals), "verbs": verbs}
            for group, plurals in groups
        ]
        binding = {"subjects": [{"name": "user"}], "roleRef": {"kind": kind, "name": "r"}}
        manifests.append({"kind": kind, "metadata": metadata, "rules": rules})
        manifests.append({"kind": f"{kind}Binding", "metadata": metadata} | binding)

    grant("Role", namespace, NAMESPACED)
    if cluster:
        grant("ClusterRole", "", CLUSTER)
    return Authorizer(manifests, "user")
