"""The API server refuses limits of a GPUQuota that mean nothing, and shows what is used."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kubeshare.api.types.gpu_quota import GPUQuota
from kubeshare.core.quota.rows import Place
from kubeshare.device_manager.quota.controller import summary
from kubeshare.lab.control_plane.api_server import ApiServer
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver

Create = Callable[[dict[str, Any]], str]


def a_quota(*limits: dict[str, Any]) -> dict[str, Any]:
    spec = {"limits": list(limits)}
    head = {"apiVersion": "kubeshare.nthu/v1", "kind": "GPUQuota", "metadata": {"name": "gpus"}}
    return head | {"spec": spec}


@pytest.mark.parametrize("gpus", [0, 4, "2.5", "500m"])
def test_a_number_of_gpus_is_accepted(create: Create, gpus: object) -> None:
    assert "created" in create(a_quota({"model": "V100", "pools": ["a"], "gpus": gpus}))


@pytest.mark.parametrize("gpus", [-1, "many", "1e9"])
def test_anything_else_is_refused(create: Create, gpus: object) -> None:
    with pytest.raises(LabError, match="must be a number of GPUs from 0 to 100000"):
        create(a_quota({"gpus": gpus}))


@pytest.mark.parametrize("limits", [[], [{"model": "V100"}], [{"gpus": 1, "pools": [""]}]])
def test_a_quota_needs_limits_and_each_its_number(create: Create, limits: list[Any]) -> None:
    with pytest.raises(LabError, match="limits"):
        create(a_quota(*limits))


def test_the_columns_show_what_is_used(cluster: ApiServer, namespace: str, create: Create) -> None:
    create(a_quota({"model": "V100", "pools": ["a", "b"], "gpus": "2.5"}, {"gpus": 4}))
    text = cluster.kubectl("get", "gpuquota", "gpus", "-n", namespace, "-o", "json")
    shown = summary(
        msgspec.json.decode(text, type=GPUQuota),
        Counter({Place("a", "", "V100"): 800_000, Place("c", "", "V100"): 200_000}),
    )
    patch = json.dumps({"status": {"summary": msgspec.to_builtins(shown)}})
    where = ("gpuquota", "gpus", "-n", namespace, "--subresource=status", "--type=merge")
    cluster.kubectl("patch", *where, "-p", patch)
    row = cluster.kubectl("get", "gpuquota", "-n", namespace).splitlines()[1]
    assert "V100@a+b 0.8, GPUs 1 " in row
    assert "V100@a+b 2.5, GPUs 4 " in row
