"""Pods with Gaia's resources get gate and resource, or are refused by name."""

import pytest

from deploy.pod_namespace import DEVICES, Namespace, Raw, cores, gates, sharing
from kubeshare.api.types.constants import GATE, LABEL_ROLE, ROLE_POD
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver


CORE_LIMIT = {"tencent.com/vcuda-core-limit": "80"}


def test_the_containers_of_a_vcuda_pod_that_ask_for_cores_share(space: Namespace) -> None:
    containers = [cores("a", "50", "4"), {"name": "b", "image": "x"}, cores("c", "200")]
    first = [cores("first", "10", "1")]
    forged = {"tencent.com/predicate-gpu-idx-0": "7"}
    pod = space.create(CORE_LIMIT | forged, containers=containers, initContainers=first)
    assert gates(pod) == [GATE]
    assert pod["metadata"]["labels"][LABEL_ROLE] == ROLE_POD
    assert (sharing(pod), sharing(pod, "initContainers")) == (["a", "c"], [])
    assert pod["spec"]["containers"][0]["resources"]["limits"]["tencent.com/vcuda-core"] == "50"


@pytest.mark.parametrize("amount", ["100", "1000", "1600"])
def test_whole_gpus_of_a_vcuda_pod_need_no_memory(space: Namespace, amount: str) -> None:
    assert sharing(space.create(CORE_LIMIT, containers=[cores("a", amount)])) == ["a"]


@pytest.mark.parametrize(
    ("container", "annotations", "words"),
    [
        (cores("a", "150", "4"), {}, "must be from 1 to 99, a share of a GPU, or a multiple of"),
        (cores("a", "1050", "4"), {}, "must be from 1 to 99, a share of a GPU, or a multiple of"),
        (cores("a", "0", "4"), {}, "vcuda-core asks for no share of a GPU in any container"),
        (cores("a", "", "4"), {}, "vcuda-core asks for no share of a GPU in any container"),
        (cores("a", "50"), {}, "needs tencent.com/vcuda-memory"),
        (cores("a", "50", "0"), {}, "needs tencent.com/vcuda-memory"),
        (cores("a", "-1", "4"), {}, "must be greater than or equal to 0"),
        (cores("a", "500m", "4"), {}, "must be an integer"),
        (
            cores("a", "50", "4"),
            {"tencent.com/vcuda-core-limit": "40"},
            "vcuda-core-limit]: 40 is less than the cores of a container",
        ),
        (
            cores("a", "50", "4"),
            {"tencent.com/vcuda-core-limit": "101"},
            "must be a number of cores from 1 to 100, not 101",
        ),
        (
            cores("a", "50", "4"),
            {"kubeshare.nthu/request": "0.5"},
            "kubeshare.nthu/request: is given beside tencent.com/vcuda-core",
        ),
        (
            cores("a", "50", "4"),
            {"kubeshare.nthu/memory": "1Gi"},
            "kubeshare.nthu/memory: is given beside tencent.com/vcuda-core",
        ),
    ],
)
def test_a_bad_vcuda_pod_is_refused_by_name(
    space: Namespace, container: Raw, annotations: dict[str, str], words: str
) -> None:
    with pytest.raises(LabError) as refused:
        space.create(annotations, containers=[container])
    assert words in str(refused.value)


def test_a_vcuda_pod_that_names_a_node_is_refused(space: Namespace) -> None:
    with pytest.raises(LabError, match=r"spec\.nodeName"):
        space.create(containers=[cores("a", "50", "4")], nodeName="n1")


def test_a_vcuda_pod_that_was_there_before_can_be_written_to(space: Namespace) -> None:
    # The rules say nothing of pods that the device manager makes.
    pod = space.create(by=DEVICES, containers=[cores("a", "150")])
    assigned = {"tencent.com/gpu-assigned": "true"}
    written = {"op": "add", "path": "/metadata/annotations", "value": assigned}
    assert space.patch(pod, written)["metadata"]["annotations"] == assigned
