"""The pods of Tencent's Gaia: the demand of a manifest, and how it is refused."""

from typing import Any

import pytest

from dialects.answers import answers_of
from kubeshare.core.demand import Demand
from kubeshare.core.units import MICROS, Memory
from kubeshare.dialects import families
from kubeshare.dialects.pod import demand_of
from kubeshare.dialects.vcuda import BLOCK, CORE_LIMIT, LIMIT_ALONE

the_demand, refusal = answers_of(demand_of)

Raw = dict[str, Any]
LIMIT_ALONE_AS_ELSEWHERE = "kubeshare.nthu/limitAlone"


def container(name: str, cores: object = None, blocks: object = None, **more: object) -> Raw:
    limits = {"tencent.com/vcuda-core": cores, "tencent.com/vcuda-memory": blocks, **more}
    return {
        "name": name,
        "resources": {"limits": {key: each for key, each in limits.items() if each is not None}},
    }


def a_pod(*containers: Raw, labels: Raw | None = None) -> Raw:
    metadata: Raw = {"name": "a", "namespace": "team", "uid": "1-2"}
    metadata |= {"labels": labels or {}}
    return {"metadata": metadata, "spec": {"containers": list(containers)}}


def annotated(pod: Raw, **annotations: str) -> Raw:
    pod["metadata"]["annotations"] = annotations
    return pod


HALF = container("main", "50", "4")


def test_one_container_is_a_demand_of_the_family_in_the_short_form() -> None:
    assert the_demand(a_pod(HALF, container("other"))) == Demand(
        uid="1-2",
        name="a",
        namespace="team",
        request_micros=500_000,
        limit_micros=500_000,
        memory=Memory(bytes=4 * BLOCK),
        family="vcuda",
    )


def test_whole_gpus_have_all_of_their_time_and_memory() -> None:
    whole = annotated(a_pod(container("main", "200", "1")), **{CORE_LIMIT: "80"})
    found = the_demand(whole)
    assert (found.count, found.request_micros, found.limit_micros) == (2, MICROS, MICROS)
    assert found.memory == Memory(micros=MICROS)


def test_each_of_several_containers_has_its_share() -> None:
    found = the_demand(a_pod(container("a", "100"), container("b"), container("c", "25", "1")))
    assert [(each.name, each.request_micros) for each in found.shares] == [
        ("a", MICROS),
        ("c", 250_000),
    ]
    assert found.family == "vcuda"


@pytest.mark.parametrize(
    ("annotations", "limits"),
    [
        ({}, (500_000, None)),
        ({CORE_LIMIT: "80"}, (800_000, None)),
        ({CORE_LIMIT: "50"}, (500_000, None)),
        ({CORE_LIMIT: ""}, (500_000, None)),
        ({LIMIT_ALONE: "true"}, (500_000, MICROS)),
        ({LIMIT_ALONE: "0.7"}, (500_000, 700_000)),
        ({LIMIT_ALONE: ""}, (500_000, None)),
        ({LIMIT_ALONE_AS_ELSEWHERE: "0.7"}, (500_000, 700_000)),
        ({LIMIT_ALONE_AS_ELSEWHERE: "1", LIMIT_ALONE: "true"}, (500_000, MICROS)),
        ({CORE_LIMIT: "60", LIMIT_ALONE: "true"}, (600_000, MICROS)),
    ],
)
def test_the_limits_are_the_cores_or_what_annotations_say(
    annotations: dict[str, str], limits: tuple[int, int | None]
) -> None:
    found = the_demand(annotated(a_pod(HALF), **annotations))
    assert (found.limit_micros, found.limit_alone_micros) == limits
    assert found.request_micros == 500_000


def test_an_annotation_makes_its_shares_latency_sensitive() -> None:
    pod = a_pod(container("a", "100"), container("b", "25", "1"))
    found = the_demand(annotated(pod, **{"kubeshare.nthu/latencySensitive": "true"}))
    assert [each.latency_sensitive for each in found.shares] == [False, True]


def test_the_constraints_of_annotations_bind() -> None:
    written = {"affinity": "red", "antiAffinity": "blue", "exclusion": "green", "model": "T4"}
    annotations = {f"kubeshare.nthu/{field}": value for field, value in written.items()}
    found = the_demand(annotated(a_pod(HALF), **annotations))
    assert (found.affinity, found.anti_affinity, found.exclusion, found.model) == (
        *("red", "blue", "green"),
        "T4",
    )


def test_forged_annotations_of_the_published_scheduler_are_not_believed() -> None:
    forged = {
        "tencent.com/predicate-gpu-idx-0": "7",
        "tencent.com/predicate-node": "elsewhere",
        "tencent.com/predicate-time": "1",
        "tencent.com/gpu-assigned": "true",
    }
    assert the_demand(annotated(a_pod(HALF), **forged)) == the_demand(a_pod(HALF))


OF_ANNOTATION = "metadata.annotations[tencent.com/vcuda-core-limit]"


@pytest.mark.parametrize(
    ("containers", "annotations", "field", "words"),
    [
        ([container("a", "150", "4")], {}, "vcuda-core]", "not a multiple of 100"),
        ([container("a", "50")], {}, "vcuda-memory]", "50 cores are a share of a GPU, which needs"),
        ([container("a", "50", "0")], {}, "vcuda-memory]", "needs some of its memory"),
        ([container("a", None, "4")], {}, "vcuda-core]", "asks for no share of a GPU"),
        ([container("a", "0", "0")], {}, "tencent.com/vcuda-core", "no share of a GPU in any"),
        ([container("a", "1700")], {}, "spec.containers", "17 shares are more than 16"),
        ([HALF], {CORE_LIMIT: "40"}, OF_ANNOTATION, "40 is less than the cores of container main"),
        ([HALF], {CORE_LIMIT: "101"}, OF_ANNOTATION, "from 1 to 100"),
        ([HALF], {LIMIT_ALONE: "0.3"}, f"[{LIMIT_ALONE}]", "less than the 50 cores"),
        ([HALF], {LIMIT_ALONE: "yes"}, LIMIT_ALONE, "is not a number"),
        ([HALF], {LIMIT_ALONE: ".6", LIMIT_ALONE_AS_ELSEWHERE: ".7"}, LIMIT_ALONE, "differ"),
        ([HALF], {"kubeshare.nthu/request": "0.5"}, "kubeshare.nthu/request", "is given beside"),
        ([HALF], {"kubeshare.nthu/share.a": "request=1"}, "share.a", "is given beside"),
        (
            [HALF, container("b", **{"aliyun.com/gpu-mem": "2"})],
            {},
            "spec.containers",
            "aliyun.com/gpu-mem and tencent.com/vcuda-core: a pod asks for one",
        ),
    ],
)
def test_what_nobody_can_have_is_refused_by_its_name(
    containers: list[Raw], annotations: dict[str, str], field: str, words: str
) -> None:
    error = refusal(annotated(a_pod(*containers), **annotations))
    assert error.field.endswith(field)
    assert words in error.message


def test_labels_of_another_form_are_refused() -> None:
    error = refusal(a_pod(HALF, labels={"sharedgpu/gpu_limit": "0.5"}))
    assert error.field == "sharedgpu/gpu_limit"


def test_init_containers_get_nothing() -> None:
    only_first = {"containers": [{"name": "main"}], "initContainers": [HALF]}
    pod = {"metadata": {"name": "a"}, "spec": only_first}
    assert "in any container" in refusal(pod).message


def test_a_pod_of_no_family_is_read_otherwise() -> None:
    assert families.family_of({"containers": [{"name": "main"}]}) is None
    assert demand_of(a_pod(container("main"))) is None
