"""Which grants a claim has, and which containers use them."""

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeshare.core.demand import Share
from kubeshare.dialects.pod import listed_shares
from kubeshare.node.dra.attachment import Attachment, Use, claim_of, of_several_shares
from kubeshare.tokens.files.grants import GrantedShare

X, Y, Z = (f"GPU-00000000-0000-4000-8000-00000000000{n}" for n in "123")
CONTAINERS = {"request-0": "a", "request-1": "b"}


def granted(name: str, uuid: str) -> GrantedShare:
    return GrantedShare(
        uuid=uuid,
        memory_total_bytes=16 << 30,
        request_micros=200_000,
        limit_micros=500_000,
        memory_bytes=1 << 30,
        share=name,
    )


def listed(**containers: str) -> tuple[Share, ...]:
    """Shares by name, each with its containers between spaces."""
    return tuple(Share(name=name, containers=tuple(of.split())) for name, of in containers.items())


def by_annotations(annotations: dict[str, str]) -> tuple[Share, ...]:
    """The shares of a pod with these annotations."""
    return listed_shares({"metadata": {"annotations": annotations}})


def attach(
    shares: Mapping[str, tuple[str, ...]],
    wanted: tuple[Share, ...],
    containers: Mapping[str, str] = CONTAINERS,
) -> Attachment:
    """The attachment of claim ``c``; ``shares`` has the GPUs of each."""
    held = [granted(name, uuid) for name, uuids in shares.items() for uuid in uuids]
    return of_several_shares("c", held, wanted, containers)


def grants(attachment: Attachment) -> dict[str, list[tuple[str, str]]]:
    return {
        name: [(share.share, share.uuid) for share in shares]
        for name, shares in attachment.grants.items()
    }


def test_containers_with_different_shares_have_a_grant_each_also_on_one_gpu() -> None:
    found = attach({"l": (X,), "r": (X,)}, listed(l="a", r="b"))
    assert grants(found) == {"c.l": [("l", X)], "c.r": [("r", X)]}
    assert found.uses == {"request-0": Use("c.l", (X,)), "request-1": Use("c.r", (X,))}


def test_shares_without_containers_are_one_grant_that_all_use() -> None:
    shares = by_annotations({"kubeshare.nthu/request": "2.5"})
    found = attach({"whole": (X, Y), "rest": (Z,)}, shares)
    assert grants(found) == {"c.rest": [("whole", X), ("whole", Y), ("rest", Z)]}
    assert set(found.uses.values()) == {Use("c.rest", (X, Y, Z))}


def test_a_container_sees_the_gpus_of_its_own_shares_only() -> None:
    found = attach({"s": (X,), "t": (Y,)}, listed(s="a b", t="b"))
    assert grants(found) == {"c.s": [("s", X), ("t", Y)]}
    assert found.uses == {"request-0": Use("c.s", (X,)), "request-1": Use("c.s", (X, Y))}


def test_a_container_without_a_share_is_refused_by_its_name() -> None:
    with pytest.raises(ValueError, match=r"container b asks for kubeshare\.nthu/vgpu and uses no"):
        attach({"s": (X,)}, listed(s="a"))


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (listed(s="a"), "holders for the shares s, t, and the pod lists s:"),
        (listed(s="a", u="b"), "the pod lists s, u:"),
        ((*listed(s="a"), Share(name="t", count=2)), r"the pod lists s, t \(2\):"),
        ((), "the pod lists none:"),
        (listed(s="a", t="a b"), f"its shares s and t are both on GPU {X}"),
    ],
)
def test_annotations_that_do_not_fit_the_holders_are_refused(
    wanted: tuple[Share, ...], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        attach({"s": (X,), "t": (X,)}, wanted)


def test_the_shares_of_a_pod_are_those_of_its_annotations() -> None:
    key = "kubeshare.nthu/share."
    found = by_annotations({f"{key}b": "request=.5,containers=a+b", f"{key}a": "request=1,count=2"})
    assert [(share.name, share.count, share.containers) for share in found] == [
        ("a", 2, ()),
        ("b", 1, ("a", "b")),
    ]
    for short in ({}, {"kubeshare.nthu/request": "0.5"}, {"kubeshare.nthu/request": "1"}):
        assert by_annotations(short) == ()


def test_the_shares_of_a_vcuda_pod_are_those_of_its_containers() -> None:
    containers: list[dict[str, object]] = [{"name": "log"}]
    for name, cores in (("main", "200"), ("side", "50")):
        limits = {"tencent.com/vcuda-core": cores, "tencent.com/vcuda-memory": "4"}
        containers.append({"name": name, "resources": {"limits": limits}})
    misleading = {"kubeshare.nthu/share.log": "request=1,containers=log"}
    pod = {"metadata": {"annotations": misleading}, "spec": {"containers": containers}}
    assert [(share.name, share.count, share.containers) for share in listed_shares(pod)] == [
        ("main", 2, ("main",)),
        ("side", 1, ("side",)),
    ]


def test_a_grant_says_its_claim() -> None:
    assert [claim_of(name) for name in ("0c-1a", "0c-1a.left")] == ["0c-1a", "0c-1a"]


@given(st.lists(st.sets(st.sampled_from("abcd")), min_size=1, max_size=6), st.data())
@settings(max_examples=60, deadline=None)
def test_each_holder_is_in_one_grant_and_each_container_in_that_of_all_its_shares(
    users: list[set[str]], data: st.DataObject
) -> None:
    wanted = tuple(
        Share(name=f"s{n}", count=data.draw(st.integers(1, 2)), containers=tuple(sorted(names)))
        for n, names in enumerate(users)
    )
    gpus = iter(f"GPU-00000000-0000-4000-8000-{n:012x}" for n in range(12))
    held = {share.name: tuple(next(gpus) for _ in range(share.count)) for share in wanted}
    everybody = {name for names in users for name in names} or {"a"}
    found = attach(held, wanted, {f"request-{name}": name for name in everybody})
    placed = Counter(
        (share.share, share.uuid) for shares in found.grants.values() for share in shares
    )
    assert placed == Counter((name, uuid) for name, uuids in held.items() for uuid in uuids)
    for container in everybody:
        used = found.uses[f"request-{container}"]
        own = [share.name for share in wanted if container in (share.containers or everybody)]
        assert sorted(used.gpus) == sorted(uuid for name in own for uuid in held[name])
        assert set(used.gpus) <= {share.uuid for share in found.grants[used.grant]}
