"""Whether a grant fits beside the live ones."""

import msgspec

from kubeshare.tokens.capacity import shortfall
from kubeshare.tokens.files.grants import Grant
from tokens.helpers import GI, GPU_A, GPU_B, grant


def test_a_grant_of_another_gpu_takes_nothing_away() -> None:
    live = [grant("a", 1, gpus=(GPU_B,))]

    assert shortfall(grant("b", 1), live, lambda held: held.claim) is None


def test_each_share_of_a_holder_is_named() -> None:
    live = [grant("a", 0.3, share="train"), grant("a.1", 0.6, share="serve")]

    assert shortfall(grant("b", 0.5), live, lambda _: "ns/pod") == (
        f"{GPU_A} has 0.1 of its time left, 0.5 is requested; "
        "held by ns/pod:train: 0.3, 1Gi; ns/pod:serve: 0.6, 1Gi"
    )


def test_the_smaller_of_two_opinions_about_a_gpus_memory_counts() -> None:
    smaller = msgspec.structs.replace(grant("x").gpus[0], memory_total_bytes=2 * GI)
    live = [msgspec.structs.replace(grant("a"), gpus=(smaller,))]

    missing = shortfall(grant("b", memory=2 * GI), live, lambda held: held.claim)

    assert missing == f"{GPU_A} has 1Gi of its memory left, 2Gi is asked; held by a: 0.3, 1Gi"


def test_an_oversubscribed_gpu_gives_what_may_be_granted_and_no_byte_more() -> None:
    def oversubscribed(claim: str, memory: int) -> Grant:
        share = grant(claim, 0.1, memory=memory).gpus[0]
        more = msgspec.structs.replace(share, memory_total_bytes=24 * GI, physical_memory_bytes=GI)
        return msgspec.structs.replace(grant(claim), gpus=(more,))

    live = [oversubscribed("a", 16 * GI)]

    assert shortfall(oversubscribed("b", 8 * GI), live, lambda held: held.claim) is None
    missing = shortfall(oversubscribed("b", 8 * GI + 1), live, lambda held: held.claim)
    assert missing is not None
    assert missing.startswith(f"{GPU_A} has 8Gi of its memory left")
