"""Where each public case of gpushare is tested in a real cluster, and what is different there."""

from typing import Final, NamedTuple

HERE: Final = {
    1: "test_which_gpu: two GPUs of 16384 MiB, one node",
    2: "test_which_gpu: 2 x 16384",
    3: "test_which_gpu: N1 with 216 MiB more",
    4: "test_which_gpu: N2 with 216 MiB more",
    5: "test_which_gpu: the one node is N2, N1 and N3 in turn",
    6: "test_which_gpu: 12315 and 8246 are free; a third and a fourth GPU are not there",
    7: "test_how_many: two pods of 8138 on each GPU instead of fifteen of 1024",
    8: "test_how_many: 1024 GiB are asked for in MiB",
    9: "test_how_many: as published",
    10: "test_which_gpu: as published",
    11: "test_how_many: GPUs that several pods have filled to the last unit, instead of one pod",
    12: "test_how_many: 16385 MiB, two GPUs",
    16: "test_which_gpu: N2 and N3 are the one node in turn",
    17: "test_failing: GPU 0 alone, by its driver and not by a ConfigMap",
    20: "test_what_follows: by the extender; the other door has no calls",
    23: "test_how_many: as published",
    24: "test_what_follows: both replicas of the extender; Sched: e2e/test_killed.py",
    25: "test_what_follows: three pods by four, 1000 MiB",
    26: "test_how_many: four equal pods at once",
    28: "test_which_gpu: 5000 + 5000 on GPU 0",
    29: "test_how_many: as published",
    30: "test_failing: by manifests; the device plugin is the same for both doors",
    31: "test_what_follows: three pods of 3072 MiB, one node",
    33: "test_what_follows: as published",
    34: "test_what_follows: as published",
    35: "test_failing: XID 31 on GPU 1, then 48 on GPU 0",
}
"""Case -> the test in ``test_published_cases.py``, and what is not as published there."""


class Elsewhere(NamedTuple):
    """Why a case is not here, and the module and test that has it."""

    why: str
    path: str
    test: str


ELSEWHERE: Final = {
    21: Elsewhere(
        "kube-scheduler binds a pod once: a conflict needs a second writer at the same moment",
        "extender/test_binding.py",
        "test_a_binding_that_is_refused_is_undone_at_once",
    ),
    22: Elsewhere(
        "the same; annotations come with the Binding, so there is no patch to fail",
        "extender/test_binding.py",
        "test_a_bind_that_meets_a_fault_is_repeated_and_leaves_no_share",
    ),
    27: Elsewhere(
        "the claim names the pod, so no pod is looked for by its amount; one without a share",
        "e2e/test_attacks.py",
        "test_a_pod_with_a_claim_and_without_a_holder_never_starts",
    ),
    32: Elsewhere(
        "admission lets no such pod in: it is older than KubeShare",
        "extender/test_published_lives.py",
        "test_32_a_running_pod_without_annotations_is_pending_for_inspect_and_uses_no_gpu",
    ),
}
"""Case -> why a shared, real cluster cannot have it."""

PUBLIC: Final = {*range(1, 13), 16, 17, *range(20, 36)}
