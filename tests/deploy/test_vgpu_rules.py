"""The API server itself refuses to promise more than a GPU has, whoever writes."""

import json
from typing import Any

import msgspec
import pytest

from fakes import objects
from kubeshare.api import holders
from kubeshare.api.types.v1 import VGPU, Holder
from kubeshare.lab.control_plane.api_server import ApiServer
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver

GIB = 1 << 30


def holder(demand: str, request: int, memory: int = GIB, **more: Any) -> Holder:
    amounts = {"limit_micros": 1_000_000, "memory_bytes": memory}
    return objects.holder(demand, request, **({"attempt": 1} | amounts | more))


def read(cluster: ApiServer, name: str) -> VGPU:
    return msgspec.json.decode(cluster.kubectl("get", "vgpu", name, "-o", "json"), type=VGPU)


def patch(cluster: ApiServer, name: str, operations: list[dict[str, Any]]) -> None:
    cluster.kubectl(
        "patch", "vgpu", name, "--subresource=status", "--type=json", "-p", json.dumps(operations)
    )


def add(cluster: ApiServer, name: str, *new: Holder) -> None:
    for one in new:
        patch(cluster, name, holders.add(read(cluster, name), one))


def test_six_shares_that_fill_a_gpu_exactly_are_accepted(cluster: ApiServer, vgpu: str) -> None:
    shares = (100_000, 100_000, 100_000, 300_000, 300_000, 100_000)

    add(cluster, vgpu, *(holder(f"d{n}", share) for n, share in enumerate(shares)))

    assert sum(h.request_micros for h in read(cluster, vgpu).status.holders) == 1_000_000


def test_one_millionth_too_much_compute_is_refused(cluster: ApiServer, vgpu: str) -> None:
    add(cluster, vgpu, holder("a", 600_000))

    with pytest.raises(LabError, match="more than one GPU"):
        add(cluster, vgpu, holder("b", 400_001))

    assert [h.demand for h in read(cluster, vgpu).status.holders] == ["a"]


def test_one_byte_too_much_memory_is_refused(cluster: ApiServer, vgpu: str) -> None:
    add(cluster, vgpu, holder("a", 0, 15 * GIB))

    with pytest.raises(LabError, match="memory would be more than the GPU has"):
        add(cluster, vgpu, holder("b", 0, GIB + 1))


def give_out(cluster: ApiServer, name: str, memory: int, *, of: int) -> None:
    spec = {"memoryBytes": memory, "physicalMemoryBytes": of}
    cluster.kubectl("patch", "vgpu", name, "--type=merge", "-p", json.dumps({"spec": spec}))


def test_where_more_memory_is_given_out_than_there_is_not_one_byte_more_is(
    cluster: ApiServer, vgpu: str
) -> None:
    give_out(cluster, vgpu, 24 * GIB, of=16 * GIB)
    add(cluster, vgpu, *(holder(name, 0, 8 * GIB) for name in "abc"))

    with pytest.raises(LabError, match="memory would be more than the GPU has"):
        add(cluster, vgpu, holder("d", 0, 1))

    assert [h.demand for h in read(cluster, vgpu).status.holders] == ["a", "b", "c"]


def test_a_gpu_has_no_more_memory_than_may_be_given_out(cluster: ApiServer, vgpu: str) -> None:
    with pytest.raises(LabError, match="may be given out is at least what the GPU has"):
        give_out(cluster, vgpu, 16 * GIB, of=16 * GIB + 1)


def test_a_patch_made_from_an_older_read_changes_nothing(cluster: ApiServer, vgpu: str) -> None:
    stale = read(cluster, vgpu)
    add(cluster, vgpu, holder("a", 100_000))

    with pytest.raises(LabError):
        patch(cluster, vgpu, holders.add(stale, holder("b", 100_000)))

    assert [h.demand for h in read(cluster, vgpu).status.holders] == ["a"]


def test_a_holder_leaves_and_its_room_is_free_again(cluster: ApiServer, vgpu: str) -> None:
    add(cluster, vgpu, holder("a", 600_000), holder("b", 400_000))

    patch(cluster, vgpu, holders.remove(read(cluster, vgpu), "a"))
    add(cluster, vgpu, holder("c", 600_000))

    assert [h.demand for h in read(cluster, vgpu).status.holders] == ["b", "c"]


def test_the_same_demand_cannot_hold_twice(cluster: ApiServer, vgpu: str) -> None:
    add(cluster, vgpu, holder("a", 100_000))

    with pytest.raises(LabError, match="Duplicate value"):
        add(cluster, vgpu, holder("a", 100_000))


def test_a_pods_uid_is_added_to_its_holder_alone(cluster: ApiServer, vgpu: str) -> None:
    add(cluster, vgpu, holder("a", 100_000), holder("b", 100_000))

    patch(cluster, vgpu, holders.set_pod_uid(read(cluster, vgpu), "b", "uid-of-b"))

    assert [h.pod_uid for h in read(cluster, vgpu).status.holders] == ["", "uid-of-b"]


def test_naming_a_pod_minds_no_other_holder_that_comes(cluster: ApiServer, vgpu: str) -> None:
    add(cluster, vgpu, holder("a", 100_000))
    before = read(cluster, vgpu)
    add(cluster, vgpu, holder("b", 100_000))

    patch(cluster, vgpu, holders.set_pod_uid(before, "a", "uid-of-a"))

    assert [h.pod_uid for h in read(cluster, vgpu).status.holders] == ["uid-of-a", ""]
    with pytest.raises(LabError):  # it names one by now
        patch(cluster, vgpu, holders.set_pod_uid(before, "a", "uid-of-another"))


def test_naming_a_pod_of_a_former_decision_changes_nothing(cluster: ApiServer, vgpu: str) -> None:
    add(cluster, vgpu, holder("a", 100_000))
    before = read(cluster, vgpu)
    patch(cluster, vgpu, holders.remove(before, "a"))
    add(cluster, vgpu, holder("a", 100_000, attempt=2))

    with pytest.raises(LabError):
        patch(cluster, vgpu, holders.set_pod_uid(before, "a", "uid-of-a"))

    assert [h.pod_uid for h in read(cluster, vgpu).status.holders] == [""]


def test_a_holder_comes_though_a_pod_was_named_or_the_gpu_found_meanwhile(
    cluster: ApiServer, vgpu: str
) -> None:
    add(cluster, vgpu, holder("a", 100_000))
    before = read(cluster, vgpu)
    patch(cluster, vgpu, holders.set_phase(before, "Active"))
    patch(cluster, vgpu, holders.set_pod_uid(before, "a", "uid-of-a"))

    patch(cluster, vgpu, holders.add(before, holder("b", 100_000)))

    now = read(cluster, vgpu)
    assert [h.demand for h in now.status.holders] == ["a", "b"]
    assert (now.status.phase, now.status.summary.holders) == ("Active", 2)


@pytest.mark.parametrize("leaves", ["a", "b"])
def test_a_holder_does_not_come_beside_others_than_it_was_decided_for(
    cluster: ApiServer, vgpu: str, leaves: str
) -> None:
    add(cluster, vgpu, holder("a", 100_000), holder("b", 100_000))
    before = read(cluster, vgpu)
    patch(cluster, vgpu, holders.remove(before, leaves))
    add(cluster, vgpu, holder("c", 100_000))  # the sums are the same again

    with pytest.raises(LabError):
        patch(cluster, vgpu, holders.add(before, holder("d", 100_000)))


def test_a_vgpu_that_has_lost_its_last_holder_does_not_become_active(
    cluster: ApiServer, vgpu: str
) -> None:
    add(cluster, vgpu, holder("a", 100_000))
    before = read(cluster, vgpu)
    patch(cluster, vgpu, holders.remove(before, "a"))

    with pytest.raises(LabError):
        patch(cluster, vgpu, holders.set_phase(before, "Active"))


def test_a_vgpu_being_given_back_takes_no_holder(cluster: ApiServer, vgpu: str) -> None:
    patch(cluster, vgpu, holders.set_phase(read(cluster, vgpu), "Deleting"))

    with pytest.raises(LabError, match="takes no holders"):
        add(cluster, vgpu, holder("a", 1))


def test_a_vgpu_with_holders_cannot_be_given_back(cluster: ApiServer, vgpu: str) -> None:
    add(cluster, vgpu, holder("a", 1))

    with pytest.raises(LabError, match="takes no holders"):
        patch(cluster, vgpu, holders.set_phase(read(cluster, vgpu), "Deleting"))


def test_a_request_above_its_limit_is_refused(cluster: ApiServer, vgpu: str) -> None:
    odd = Holder(demand="a", request_micros=600_000, limit_micros=500_000, memory_bytes=1)

    with pytest.raises(LabError, match="request is at most its limit"):
        add(cluster, vgpu, odd)


def test_a_uuid_once_known_stays(cluster: ApiServer, vgpu: str) -> None:
    def set_uuid(uuid: str) -> None:
        body = json.dumps({"spec": {"uuid": uuid}})
        cluster.kubectl("patch", "vgpu", vgpu, "--type=merge", "-p", body)

    set_uuid("GPU-1")

    with pytest.raises(LabError, match="does not change"):
        set_uuid("GPU-2")


def test_a_demand_may_have_several_shares_of_one_gpu(cluster: ApiServer, vgpu: str) -> None:
    add(cluster, vgpu, holder("a", 600_000, share="x"), holder("a", 300_000, share="y"))
    add(cluster, vgpu, holder("b", 100_000))

    with pytest.raises(LabError, match=r"(?i)duplicate"):
        add(cluster, vgpu, holder("a", 0, share="x"))
    patch(cluster, vgpu, holders.set_pod_uid(read(cluster, vgpu), "a", "uid-of-a"))
    found = read(cluster, vgpu).status.holders
    assert [(h.demand, h.share, h.pod_uid) for h in found] == [
        ("a", "x", "uid-of-a"),
        ("a", "y", "uid-of-a"),
        ("b", "", ""),
    ]

    patch(cluster, vgpu, holders.remove(read(cluster, vgpu), "a"))
    now = read(cluster, vgpu).status
    assert [h.demand for h in now.holders] == ["b"]
    assert (now.summary.holders, now.summary.requested) == (1, "0.1")


def test_shares_of_one_demand_are_summed(cluster: ApiServer, vgpu: str) -> None:
    add(cluster, vgpu, holder("a", 600_000, share="x"))

    with pytest.raises(LabError, match="more than one GPU"):
        add(cluster, vgpu, holder("a", 400_001, share="y"))


@pytest.mark.parametrize(("alone", "accepted"), [(0, True), (500_000, True), (499_999, False)])
def test_the_limit_while_alone_is_at_least_the_limit(
    cluster: ApiServer, vgpu: str, *, alone: int, accepted: bool
) -> None:
    new = holder("a", 100_000, limit_micros=500_000, limit_alone_micros=alone)
    if accepted:
        add(cluster, vgpu, new)
        assert read(cluster, vgpu).status.holders[0].limit_alone_micros == alone
        return
    with pytest.raises(LabError, match="limit while alone is at least its limit"):
        add(cluster, vgpu, new)


def test_an_entry_as_earlier_versions_write_it_is_kept(cluster: ApiServer, vgpu: str) -> None:
    old = msgspec.to_builtins(holder("a", 100_000))
    for field in ("share", "limitAloneMicros", "latencySensitive", "group"):
        del old[field]
    patch(cluster, vgpu, [{"op": "add", "path": "/status/holders", "value": [old]}])
    add(cluster, vgpu, holder("b", 100_000))

    first, second = read(cluster, vgpu).status.holders
    assert (first.demand, first.share, first.limit_alone_micros) == ("a", "", 0)
    assert second.demand == "b"
    patch(cluster, vgpu, holders.remove(read(cluster, vgpu), "a"))
    assert [h.demand for h in read(cluster, vgpu).status.holders] == ["b"]
