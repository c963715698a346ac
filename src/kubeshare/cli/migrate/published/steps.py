"""Says what is done, in the way, and not carried over. Pure."""

from collections.abc import Iterator
from typing import Final

from kubeshare.cli.migrate.names import shortened
from kubeshare.cli.migrate.published.model import Former
from kubeshare.cli.migrate.published.programs import STATUS_KEYS

_SAMPLE: Final = 10
NOT_CARRIED: Final = (
    (
        ".status.PodStatus, PodObjectMeta, BoundDeviceID, PodManagerPort",
        "copies of the pod: see .status.conditions and .status.gpus; there are no ports",
    ),
    ("kubeshare/gpu_info of nodes", "a GPUNode says more: kubectl get gpunodes"),
    ("sharedgpu.goc/v1", "its SharePods are not converted: create them as kubeshare.nthu/v1"),
    (
        "LD_PRELOAD, POD_MANAGER_IP, POD_MANAGER_PORT, POD_NAME and NVIDIA_VISIBLE_DEVICES",
        "GPUs and the library come by CDI: a pod that names its GPU by a variable has none",
    ),
    (
        "kubeshare-config.yaml, sharedgpu/cell_id and the score of groups",
        "the node agent finds the links between GPUs; priorities of models have no counterpart",
    ),
    (
        "gpu_capacity and gpu_requirement of Prometheus",
        "see docs/metrics.md; nothing that KubeShare decides depends on Prometheus",
    ),
    ("Kubernetes before 1.36", "the admission policies and DRA that KubeShare needs are newer"),
    ("RDMA and NICs", "they belong to drivers of DRA"),
)
"""What is not carried over → why, and what there is instead."""


def steps(former: Former) -> Iterator[str]:
    """What ``--apply`` does, in order; nothing where nothing is left."""
    for program in former.to_stop:
        yield f"stop {program.title}"
    if former.kind == "old" and not former.foreign_versions:
        yield f"replace the CRD; {len(former.sharepods)} SharePods stay"
        if keyed := sum(bool(each.old_keys) for each in former.sharepods):
            yield f"drop {', '.join(STATUS_KEYS[:4])} from the status of {keyed} SharePods"
    for placeholder in former.unused_placeholders:
        yield f"delete pod {placeholder.title}, whose GPU no pod uses"
    for name in former.bindings:
        yield f"remove ClusterRoleBinding {name}, whose name this version needs"


def problems(former: Former) -> Iterator[str]:
    """What a person has to do before KubeShare can be installed."""
    if former.foreign_versions:
        versions = ", ".join(former.foreign_versions)
        yield (
            f"SharePods may be stored as {versions}, which this version does not have: write them "
            "again as v1, and take the others out of the CRD's status.storedVersions"
        )
    if former.installed and former.placing:
        yield (
            "both an earlier version and this one run, and give out the same GPUs: run --apply "
            "now; until then, let no pod start that asks for a share"
        )
    if former.pods:
        titles = shortened(pod.title for pod in former.pods)
        yield (
            f"{len(former.pods)} pods have GPUs from an earlier version, and run on: {titles}. "
            "KubeShare does not know what they use: wait for their end, or delete their "
            "SharePods, then run --apply again; what serves them is stopped then"
        )
    if former.waiting:
        yield (
            f"only version 2's scheduler would place {shortened(former.waiting)}: delete them once "
            "KubeShare is installed, so that they are created again"
        )
    if former.other_sharepods:
        yield (
            f"SharePods of sharedgpu.goc are not converted: {shortened(former.other_sharepods)}: "
            "create them again as kubeshare.nthu/v1"
        )
    refused = [each for each in former.sharepods if each.problem and former.is_there]
    yield from (f"SharePod {each.title}: {each.problem}" for each in refused[:_SAMPLE])
    if refused[_SAMPLE:]:
        yield f"{len(refused) - _SAMPLE} more SharePods are not valid"


def notes(former: Former) -> Iterator[str]:
    """What an administrator should know, and need not do anything about."""
    if pinned := [each.title for each in former.sharepods if each.pinned]:
        yield (
            f"these name their node and GPUID, by their author or the former scheduler, and keep "
            f"both: {shortened(pinned)}. To let KubeShare choose, create them again without"
        )
    if former.node_annotations:
        names = shortened(former.node_annotations)
        yield f"annotation kubeshare/gpu_info of {names} is not read any more"


def next_command(former: Former) -> str:
    """The next command; ``""`` where a person has to do something first, or nothing is left."""
    if any(steps(former)):
        return "kubeshare migrate kubeshare --apply"
    if former.pods or former.foreign_versions:
        return "kubeshare migrate kubeshare --plan"
    return "" if former.installed else "kubeshare install"
