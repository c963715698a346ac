"""The shares that options ask for, and the GPUs that are chosen for them."""

import pytest

from kubeshare.cli.run.gpu_shares import (
    Held,
    NoRoomError,
    attempts,
    choose,
    granted,
    place,
    read_gpus,
    read_share,
)
from kubeshare.core.demand import Share
from kubeshare.core.errors import InvalidValueError
from kubeshare.tokens.gpus import Gpu
from tokens.helpers import GI, grant

GPUS = tuple(
    Gpu(
        uuid=f"GPU-00000000-0000-4000-8000-00000000000{index}",
        index=index,
        minor=index,
        model="V100",
        memory_bytes=16 * GI,
    )
    for index in range(4)
)
NOTHING_HELD = Held([], {})


def held(**shares: tuple[int, float]) -> Held:
    """What these holders have: the index of a GPU, and a share of its time; and 1 GiB."""
    grants = [
        grant(name, request, gpus=(GPUS[index].uuid,)) for name, (index, request) in shares.items()
    ]
    return Held(grants, {name: f"{name} (1)" for name in shares})


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (("50%", "1", None, None), "--request"),
        (("nan", "1", None, None), "--request"),
        (("-.1", "1", None, None), "--request"),
        ((".3", "1.1", None, None), "--limit"),
        ((".3", "", None, None), "--limit"),
        ((".7", ".6", None, None), "--request"),
        ((".3", ".6", "2", None), "--limit-alone"),
        ((".3", ".6", ".5", None), "--limit-alone"),
        ((".3", None, ".5", None), "--limit-alone"),
        ((".3", ".6", None, "-1Gi"), "--memory"),
        ((".3", ".6", None, "lots"), "--memory"),
    ],
)
def test_what_is_no_share_is_refused_by_name(
    options: tuple[str, str | None, str | None, str | None], field: str
) -> None:
    with pytest.raises(InvalidValueError) as error:
        read_share(*options)

    assert error.value.field == field


def test_memory_follows_the_request_when_it_is_not_said() -> None:
    share = granted(read_share(".25", None, None, None), GPUS[0])

    assert share.memory_bytes == 4 * GI
    assert (share.limit_micros, share.limit_alone_micros) == (1_000_000, 0)


def test_the_limits_are_granted() -> None:
    share = granted(read_share(".25", ".5", ".75", "2Gi"), GPUS[1])

    assert (share.uuid, share.memory_bytes) == (GPUS[1].uuid, 2 * GI)
    assert (share.limit_micros, share.limit_alone_micros) == (500_000, 750_000)


@pytest.mark.parametrize("asked", [False, True])
def test_a_share_is_latency_sensitive_where_asked_for(*, asked: bool) -> None:
    share = read_share(".25", None, None, None, latency_sensitive=asked)

    assert granted(share, GPUS[0]).latency_sensitive is asked


@pytest.mark.parametrize("memory", ["17Gi", "0"])
def test_memory_that_the_gpu_does_not_have_is_refused(memory: str) -> None:
    with pytest.raises(InvalidValueError, match=r"--memory: .* 16Gi of GPU 0"):
        granted(read_share(".3", "1", None, memory), GPUS[0])


def test_a_gpu_is_found_by_index_and_by_uuid() -> None:
    assert choose(GPUS, "1") == choose(GPUS, GPUS[1].uuid) == (GPUS[1],)
    assert choose(GPUS, None) == GPUS


def test_a_gpu_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(InvalidValueError, match=r"7 does not exist; .* 0 \(V100, GPU-0.*\); 1 \("):
        choose(GPUS, "7")


@pytest.mark.parametrize(
    ("number", "requests"),
    [
        ("2.5", [1_000_000, 1_000_000, 500_000]),
        ("2", [1_000_000, 1_000_000]),
        ("1.25", [1_000_000, 250_000]),
        ("1", [1_000_000]),
        (".5", [500_000]),
    ],
)
def test_a_number_of_gpus_is_whole_ones_and_the_rest_of_one(
    number: str, requests: list[int]
) -> None:
    shares = read_gpus(number)

    assert [share.request_micros for share in shares] == requests
    assert [granted(share, GPUS[0]).memory_bytes for share in shares] == [
        16 * GI * request // 1_000_000 for request in requests
    ]


def test_a_part_of_one_gpu_is_the_same_as_a_request() -> None:
    assert read_gpus(".5") == (read_share(".5", None, None, None),)


@pytest.mark.parametrize("number", ["0", "-1", "17", "two", ""])
def test_what_is_no_number_of_gpus_is_refused_by_name(number: str) -> None:
    with pytest.raises(InvalidValueError, match=r"^--gpus: "):
        read_gpus(number)


def indices(shares: tuple[Share, ...], others: Held) -> list[int]:
    uuids = [gpu.uuid for gpu in GPUS]
    return [uuids.index(share.uuid) for share in place(shares, GPUS, others)]


def test_the_rest_of_a_gpu_comes_from_the_fullest_that_has_room() -> None:
    assert indices(read_gpus("2.5"), NOTHING_HELD) == [0, 1, 2]
    assert indices(read_gpus("2.5"), held(a=(0, 0.5))) == [1, 2, 0]
    assert indices(read_gpus("1.5"), held(a=(0, 0.3), b=(2, 0.4), c=(3, 0.6))) == [1, 2]


def test_a_gpu_of_which_only_memory_is_held_is_not_whole() -> None:
    assert indices(read_gpus("2"), held(a=(0, 0))) == [1, 2]


def test_what_does_not_fit_is_refused_with_who_holds_how_much() -> None:
    others = held(a=(0, 0.3), b=(1, 0.3), c=(2, 0.8))

    with pytest.raises(NoRoomError) as error:
        place(read_gpus("2.5"), GPUS, others)
    assert error.value.reasons == [
        f"{GPUS[0].uuid} has 0.7 of its time left, 1 is requested; held by a (1): 0.3, 1Gi",
        f"{GPUS[1].uuid} has 0.7 of its time left, 1 is requested; held by b (1): 0.3, 1Gi",
        f"{GPUS[2].uuid} has 0.2 of its time left, 1 is requested; held by c (1): 0.8, 1Gi",
    ]


def test_a_single_share_is_tried_on_each_gpu_without_a_question() -> None:
    asked = attempts(read_gpus(".5"), GPUS, lambda: pytest.fail("it asks"))

    assert [[share.uuid for share in shares] for shares in asked] == [[gpu.uuid] for gpu in GPUS]


def test_several_gpus_are_chosen_anew_when_another_was_faster_but_not_for_ever() -> None:
    answers = [NOTHING_HELD, held(a=(0, 0.5)), held(a=(0, 0.5), b=(1, 0.5))]
    asked = attempts(read_gpus("2"), GPUS, iter(answers).__next__)

    chosen = [
        [GPUS.index(gpu) for gpu in GPUS if gpu.uuid in {s.uuid for s in shares}]
        for shares in asked
    ]

    assert chosen == [[0, 1], [1, 2], [2, 3]]


def test_fewer_gpus_than_shares_are_wrong_use() -> None:
    with pytest.raises(InvalidValueError, match=r"^--gpus: needs 3 GPUs; this machine has 2: 0 \("):
        next(attempts(read_gpus("2.5"), GPUS[:2], lambda: NOTHING_HELD))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2", "2 is more than 1, a whole GPU; for several GPUs give --gpus 2 instead"),
        ("1e9", "1e9 is more than 1, a whole GPU"),
    ],
)
def test_who_requests_several_gpus_is_told_of_the_option_for_that(text: str, message: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        read_share(text, None, None, None)
    assert (refused.value.field, refused.value.message) == ("--request", message)
