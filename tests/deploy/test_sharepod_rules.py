"""Nonsense in a SharePod is refused by the API server, naming the field: nothing is created."""

from collections.abc import Callable
from typing import Any

import pytest

from fakes import manifests
from kubeshare.lab.control_plane.api_server import ApiServer
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver

Create = Callable[[dict[str, Any]], str]


def sharepod(gpu: dict[str, Any] | None = None, /, **annotations: str) -> dict[str, Any]:
    metadata = {"annotations": {f"kubeshare/{key}": text for key, text in annotations.items()}}
    return manifests.sharepod("probe", gpu, metadata=metadata)


def published(request: str = "0.3", limit: str = "0.6", memory: str = "1Gi") -> dict[str, str]:
    return {"gpu_request": request, "gpu_limit": limit, "gpu_mem": memory}


ACCEPTED = {
    "nothing of a GPU": sharepod(),
    "the published spelling": sharepod(**published()),
    "bytes as published": sharepod(**published("0.5", "1.0", "3145728000")),
    "memory as a fraction, as the paper": sharepod(**published(memory="0.5")),
    "no leading zero": sharepod(**published(".3", "1", "1Gi")),
    "exact ones": sharepod(**published("1", "1", "1")),
    "no guarantee": sharepod(**published("0", "1.0", "1Gi")),
    "the typed spelling": sharepod({"request": "0.3", "limit": "600m", "memory": "1Gi"}),
    "whole numbers": sharepod({"request": 1, "limit": 1, "memory": 1}),
    "both spellings that agree": sharepod({"request": "300m", "limit": "0.60"}, **published()),
    "labels": sharepod(
        sched_affinity="a", **{"sched_anti-affinity": "b"}, sched_exclusion="c", **published()
    ),
    "the containers that share": sharepod({"request": "0.3", "containers": ["main"]}),
    "a GPUID": sharepod(GPUID="abcde", **published()),
    "a GPUID that is no name": sharepod({"request": "0.3", "id": 'GPU 0, "\u00e9" / #1'}),
    "two and a half GPUs": sharepod({"request": "2.5"}),
    "a limit while alone": sharepod({"request": "0.3", "limit": "0.5", "limitAlone": 1}),
    "latency-sensitive": sharepod({"request": "0.3", "latencySensitive": True}),
    "the GPUs of two and a half": sharepod({"request": "2.5", "ids": ["a", "b", "c"]}),
    "the only GPU of different shares": sharepod({"shares": [{"name": "a"}], "ids": ["a"]}),
    "different shares": sharepod(
        {
            "shares": [
                {"name": "a", "request": "0.5", "limit": 1, "memory": "4Gi", "count": 15},
                {
                    "name": "b",
                    "request": "0.3",
                    "limit": ".4",
                    "limitAlone": ".4",
                    "latencySensitive": True,
                },
            ]
        }
    ),
}


def shares(*entries: dict[str, Any], **gpu: Any) -> dict[str, Any]:
    return sharepod({"shares": [{"name": "a"} | entry for entry in entries]} | gpu)


# name -> (object, what the message must name)
REFUSED = {
    "annotation request above limit": (sharepod(**published("0.7", "0.6")), "gpu_request"),
    "annotation limit above one": (sharepod(**published("0.3", "1.2")), "gpu_limit"),
    "annotation request negative": (sharepod(**published("-0.1")), "gpu_request"),
    "annotation request not a number": (sharepod(**published("NaN")), "gpu_request"),
    "annotation request infinite": (sharepod(**published("Inf")), "gpu_request"),
    "annotation request in percent": (sharepod(**published("50%")), "gpu_request"),
    "annotation memory negative": (sharepod(**published(memory="-1")), "gpu_mem"),
    "annotation memory a word": (sharepod(**published(memory="much")), "gpu_mem"),
    "only gpu_request": (sharepod(gpu_request="0.3"), "gpu_limit, kubeshare/gpu_mem"),
    "gpu_mem is missing": (sharepod(gpu_request="0.3", gpu_limit="0.6"), "gpu_mem"),
    "as many CPU cores as some": (
        manifests.sharepod("probe", metadata={"annotations": {"kubeshare.nthu/cpuCores": "some"}}),
        "kubeshare.nthu/cpuCores",
    ),
    "a time quota that is too long": (
        manifests.sharepod(
            "probe", metadata={"annotations": {"kubeshare.nthu/timeQuotaMilliseconds": "10001"}}
        ),
        "kubeshare.nthu/timeQuotaMilliseconds",
    ),
    "a gang that is near by rack": (
        manifests.sharepod("probe", metadata={"annotations": {"kubeshare.nthu/gang-near": "rack"}}),
        "kubeshare.nthu/gang-near",
    ),
    "request differs": (sharepod({"request": "0.2"}, **published()), "spec.gpu.request"),
    "limit differs": (sharepod({"limit": "0.5"}, **published()), "spec.gpu.limit"),
    "memory differs": (sharepod({"memory": "2Gi"}, **published()), "spec.gpu.memory"),
    "affinity differs": (
        sharepod({"affinity": "a"}, sched_affinity="b", **published()),
        "affinity / kubeshare/sched_affinity",
    ),
    "GPUID differs": (sharepod({"id": "a"}, GPUID="b", **published()), "id / kubeshare/GPUID"),
    "request above limit": (sharepod({"request": "0.7", "limit": "0.5"}), "spec.gpu.request"),
    "limit above one": (sharepod({"limit": "1.2"}), "spec.gpu.limit"),
    "request negative": (sharepod({"request": "-1"}), "spec.gpu.request"),
    "request not a number": (sharepod({"request": "NaN"}), "spec.gpu.request"),
    "request in percent": (sharepod({"request": "50%"}), "spec.gpu.request"),
    "request a float": (sharepod({"request": 0.3}), "spec.gpu.request"),
    "memory a word": (sharepod({"memory": "much"}), "spec.gpu.memory"),
    "count of none": (sharepod({"count": 0}), "spec.gpu.count"),
    "id and ids": (sharepod({"id": "a", "ids": ["b", "c"], "count": 2}), "spec.gpu.ids"),
    "fewer ids than GPUs": (sharepod({"ids": ["b"], "count": 2}), "spec.gpu.ids"),
    "ids of one GPU": (sharepod({"ids": ["b", "c"], "request": "0.5"}), "spec.gpu.ids"),
    "a container named twice": (sharepod({"containers": ["main", "main"]}), "spec.gpu.containers"),
    "an id that is not printable": (sharepod({"id": "a\tb"}), "spec.gpu.id"),
    "an id with an invisible character": (sharepod({"id": "a\u202eb"}), "spec.gpu.id"),
    "an id that is too long": (sharepod({"id": "x" * 64}), "spec.gpu.id"),
    "one of several ids is empty": (sharepod({"ids": ["a", ""], "count": 2}), "spec.gpu.ids"),
    "too many GPUs": (sharepod({"request": "16.1"}), "spec.gpu.request"),
    "several GPUs and their memory": (
        sharepod({"request": "2.5", "memory": "1Gi"}),
        "spec.gpu.request",
    ),
    "several GPUs that are latency-sensitive": (
        sharepod({"request": "2.5", "latencySensitive": True}),
        "spec.gpu.request",
    ),
    "latency-sensitive in words": (sharepod({"latencySensitive": "high"}), "spec.gpu.latencySens"),
    "shares and latency-sensitive": (shares({}, latencySensitive=True), "spec.gpu.shares"),
    "several GPUs and a count": (sharepod({"request": "2", "count": 2}), "spec.gpu.request"),
    "limit alone below limit": (
        sharepod({"limit": "0.5", "limitAlone": "0.4"}),
        "spec.gpu.limitAlone",
    ),
    "limit alone below the default limit": (
        sharepod({"limitAlone": "0.4"}),
        "spec.gpu.limitAlone",
    ),
    "shares and a request": (shares({}, request="0.3"), "spec.gpu.shares"),
    "shares and containers": (shares({}, containers=["main"]), "spec.gpu.shares"),
    "two shares of one name": (shares({}, {}), "spec.gpu.shares[1]"),
    "too many shares": (shares({"count": 16}, {"name": "b"}), "spec.gpu.shares"),
    "a share that is no name": (shares({"name": "A"}), "spec.gpu.shares[0].name"),
    "a share of more than a GPU": (shares({"request": "1.5"}), "spec.gpu.shares[0].request"),
    "a share's request above limit": (
        shares({"request": "0.5", "limit": "0.4"}),
        "spec.gpu.shares[0].request",
    ),
    "a share's memory a word": (shares({"memory": "much"}), "spec.gpu.shares[0].memory"),
}


@pytest.mark.parametrize("manifest", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_accepts(manifest: dict[str, Any], create: Create) -> None:
    assert "created" in create(manifest)


@pytest.mark.parametrize(("manifest", "named"), REFUSED.values(), ids=REFUSED.keys())
def test_refuses_by_the_fields_name(
    manifest: dict[str, Any], named: str, create: Create, cluster: ApiServer, namespace: str
) -> None:
    with pytest.raises(LabError) as refused:
        create(manifest)

    assert named in str(refused.value)
    assert cluster.kubectl("get", "shp", "-n", namespace, "-o", "name") == ""


def test_an_update_is_checked_as_a_creation_is(
    create: Create, cluster: ApiServer, namespace: str
) -> None:
    create(sharepod(**published()))

    with pytest.raises(LabError, match="gpu_limit"):
        cluster.kubectl(
            "annotate", "-n", namespace, "--overwrite", "shp/probe", "kubeshare/gpu_limit=2"
        )


def test_fields_of_a_pod_that_the_schema_does_not_name_are_kept(
    create: Create, cluster: ApiServer, namespace: str
) -> None:
    manifest = sharepod(**published())
    manifest["spec"]["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
    manifest["spec"]["containers"][0]["env"] = [{"name": "A", "value": "b"}]

    create(manifest)

    path = "{.spec.tolerations[0].key} {.spec.containers[0].env[0].value}"
    assert cluster.kubectl("get", "shp/probe", "-n", namespace, "-o", f"jsonpath={path}") == "gpu b"
