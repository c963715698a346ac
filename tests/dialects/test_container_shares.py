"""A share for each container, in the families whose containers ask each for itself."""

from typing import Any

import pytest

from kubeshare.core.demand import Share
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import MICROS, Memory
from kubeshare.dialects import vcuda

WHOLE = Memory(micros=MICROS)

Raw = dict[str, Any]


def a_pod(core_limit: str = "", /, **containers: dict[str, Any]) -> Raw:
    """A pod with these containers, each with limits of its own."""
    annotations = {"tencent.com/vcuda-core-limit": core_limit}
    spec = [
        {"name": name, "resources": {"limits": limits}} if limits else {"name": name}
        for name, limits in containers.items()
    ]
    first = [{"name": "init", "resources": {"limits": vcuda_limits(10, 1) | gpu_mem(1)}}]
    metadata = {"annotations": annotations} if core_limit else {}
    return {"metadata": metadata, "spec": {"containers": spec, "initContainers": first}}


def vcuda_limits(cores: object, blocks: object) -> Raw:
    limits = {"tencent.com/vcuda-core": cores, "tencent.com/vcuda-memory": blocks}
    return {key: value for key, value in limits.items() if value is not None}


def gpu_mem(units: object) -> Raw:
    return {"aliyun.com/gpu-mem": units}


def fragment(name: str, cores: int, blocks: int, limit: int | None = None) -> Share:
    return Share(
        name=name,
        request_micros=cores * 10_000,
        limit_micros=(limit or cores) * 10_000,
        memory=Memory(bytes=blocks * vcuda.BLOCK),
        containers=(name,),
    )


@pytest.mark.parametrize(
    ("pod", "shares"),
    [
        (a_pod(a={}), ()),
        (a_pod(a=vcuda_limits("50", "4")), (fragment("a", 50, 4),)),
        (a_pod(a=vcuda_limits("50", "4"), b={"cpu": 1}), (fragment("a", 50, 4),)),
        (a_pod(a=vcuda_limits("50", "4"), b=vcuda_limits("0", "0")), (fragment("a", 50, 4),)),
        (
            a_pod(a=vcuda_limits("60", 8), b=vcuda_limits(60, "2")),
            (fragment("a", 60, 8), fragment("b", 60, 2)),
        ),
        (
            a_pod("80", a=vcuda_limits("200", None), b=vcuda_limits("50", "4")),
            (
                Share(name="a", request_micros=MICROS, memory=WHOLE, count=2, containers=("a",)),
                fragment("b", 50, 4, 80),
            ),
        ),
    ],
)
def test_vcuda(pod: Raw, shares: tuple[Share, ...]) -> None:
    assert vcuda.container_shares(pod) == shares


@pytest.mark.parametrize(
    ("pod", "field", "words"),
    [
        (a_pod(a=vcuda_limits("150", "4")), "vcuda-core]", "not a multiple of 100"),
        (a_pod(a=vcuda_limits("0", "4")), "vcuda-core]", "no share of a GPU"),
        (a_pod(a=vcuda_limits(None, "4")), "vcuda-core]", "no share of a GPU"),
        (a_pod(a=vcuda_limits("50", "0")), "vcuda-memory]", "some of its memory"),
        (a_pod("0", a=vcuda_limits("50", "4")), "vcuda-core-limit]", "from 1 to 100"),
        (a_pod("101", a=vcuda_limits("50", "4")), "vcuda-core-limit]", "from 1 to 100"),
        (a_pod("40", a=vcuda_limits("50", "4")), "vcuda-core-limit]", "the cores of container a"),
        (
            a_pod(a=vcuda_limits(1600, None), b=vcuda_limits(1, 1)),
            "spec.containers",
            "17 shares are more than 16",
        ),
    ],
)
def test_vcuda_that_nobody_can_have_is_refused_by_its_name(
    pod: Raw, field: str, words: str
) -> None:
    with pytest.raises(InvalidValueError) as caught:
        vcuda.container_shares(pod)
    assert caught.value.field.endswith(field)
    assert words in caught.value.message
