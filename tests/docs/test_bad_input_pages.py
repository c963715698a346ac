"""Each row of the tables about bad input names a case that a test has."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
DOCS = TESTS.parent / "docs"

BAD = "extender/test_bad_input.py"
BINDING, SERVICE = "extender/test_binding.py", "extender/test_service.py"
SERVER, ARGUMENTS = "extender/http/test_server.py", "extender/wire/test_arguments.py"
POLICY = "deploy/test_gpushare_pods.py"
GAIA, GAIA_POLICY = "extender/test_gaia_bad_input.py", "deploy/test_vcuda_pods.py"
PREDICATES = "extender/test_predicates.py"

GPUSHARE = {
    "asks for a fraction": (POLICY, "test_a_bad_gpushare_pod_is_refused_by_name"),
    "asks for 0": (POLICY, "test_a_bad_gpushare_pod_is_refused_by_name"),
    "asks for more than any": (BAD, "test_more_than_any_gpu_has_waits_with_the_memory_of_each_gpu"),
    "has a `gpu-count` label that is no": (POLICY, "test_a_bad_gpushare_pod_is_refused_by_name"),
    "has a `gpu-count` label that does": (BAD, "test_what_contradicts_the_memory_is_refused"),
    "asks for `tencent.com": (BAD, "test_containers_that_ask_for_two_families_are_refused"),
    "asks for a share in another": (BAD, "test_what_contradicts_the_memory_is_refused"),
    "has `kubeshare.nthu/limit`": (BAD, "test_what_contradicts_the_memory_is_refused"),
    "names a node": (POLICY, "test_a_gpushare_pod_that_names_a_node_is_refused"),
    "finds no dedicated": (BAD, "test_a_node_that_is_not_gpushares_takes_no_pod"),
    "asks for `aliyun.com/gpu-count` alone": (
        "extender/test_published_lives.py",
        "test_a_pod_that_asks_for_no_memory_is_left_alone",
    ),
    "has annotations of any": (BAD, "test_annotations_that_a_user_writes_choose_and_hold_nothing"),
    "comes while `gpushare.memoryUnit`": (
        "api/test_configuration.py",
        "test_an_event_says_what_is_wrong_with_a_configuration",
    ),
    "was bound before": (
        "extender/test_published_lives.py",
        "test_32_a_running_pod_without_annotations_is_pending_for_inspect_and_uses_no_gpu",
    ),
}
EXTENDER = {
    "no JSON": (BAD, "test_what_cannot_be_ranked_is_a_bad_request"),
    "another shape": (ARGUMENTS, "test_what_cannot_be_read_is_refused"),
    "a body of more": (SERVER, "test_by_default_100_mb_are_refused_before_they_are_sent"),
    "a head that takes": (
        SERVER,
        "test_a_client_that_sends_byte_after_byte_has_the_time_of_one_head",
    ),
    "another method": (SERVICE, "test_other_paths_and_methods"),
    "an amount that": (BAD, "test_an_amount_that_is_no_number_of_units_is_refused"),
    "an unknown node": (SERVICE, "test_a_filter_keeps_the_nodes_with_room_on_one_gpu"),
    "a pod that is gone": (BINDING, "test_a_bind_of_what_is_not_there_writes_nothing"),
    "a pod without `kubeshare": (BINDING, "test_a_pod_that_the_policy_has_not_seen_is_refused"),
    "a pod that asks for no": (BINDING, "test_a_pod_that_asks_for_no_share_is_not_bound"),
    "the pod of a SharePod": (BINDING, "test_the_pod_of_a_sharepod_gets_no_second_share"),
    "a pod with KubeShare's": (
        "extender/test_door.py",
        "test_a_gated_pod_is_not_bound_and_keeps_what_sched_has_reserved",
    ),
    "annotations that claim": (BAD, "test_annotations_that_a_user_writes_choose_and_hold_nothing"),
    "a pod that is bound": (SERVICE, "test_a_pod_that_sched_has_placed_is_bound_and_nothing_else"),
}
VCUDA = {
    "asks for more than 100": (GAIA_POLICY, "test_a_bad_vcuda_pod_is_refused_by_name"),
    "asks for a fraction": (GAIA_POLICY, "test_a_bad_vcuda_pod_is_refused_by_name"),
    "asks for 1 to 99": (GAIA_POLICY, "test_a_bad_vcuda_pod_is_refused_by_name"),
    "asks for `vcuda-memory` alone": (GAIA_POLICY, "test_a_bad_vcuda_pod_is_refused_by_name"),
    "has `vcuda-core-limit`": (GAIA_POLICY, "test_a_bad_vcuda_pod_is_refused_by_name"),
    "has `limit-alone`": (GAIA, "test_what_nobody_can_have_is_refused_by_its_name"),
    "asks for more blocks": (GAIA, "test_more_blocks_than_any_gpu_has_never_fit"),
    "asks for whole GPUs": (
        "scheduler/test_vcuda.py",
        "test_what_no_gpu_can_give_is_never_placed",
    ),
    "asks for more than 16": (GAIA, "test_what_nobody_can_have_is_refused_by_its_name"),
    "has annotations `tencent": (
        GAIA,
        "test_predicate_annotations_that_a_user_writes_choose_and_hold_nothing",
    ),
    "asks for a share in another": (GAIA, "test_what_nobody_can_have_is_refused_by_its_name"),
    "asks for `aliyun": (GAIA, "test_containers_that_ask_for_two_families_are_refused"),
    "names a node": (GAIA_POLICY, "test_a_vcuda_pod_that_names_a_node_is_refused"),
    "finds no dedicated": (GAIA, "test_no_dedicated_node_is_a_reason"),
    "finds only nodes": (GAIA, "test_a_node_whose_kubelet_offers_nothing_yet_is_a_reason"),
}
FILTER = {
    "no JSON": (PREDICATES, "test_arguments_that_cannot_be_read_are_an_error"),
    "a pod that does not exist": (
        PREDICATES,
        "test_nothing_is_reserved_for_a_pod_that_does_not_exist",
    ),
    "an amount that": (GAIA, "test_what_nobody_can_have_is_refused_by_its_name"),
    "a pod with KubeShare's": (PREDICATES, "test_a_gated_pod_is_left_to_the_scheduler"),
    "a pod that asks for no": (PREDICATES, "test_other_pods_fit_all_nodes"),
    "no GPU fits": (PREDICATES, "test_all_nodes_are_refused_with_their_reasons_when_none_fits"),
    "another node passes": (GAIA, "test_another_node_than_the_one_that_fits_says_why_it_does_not"),
    "the pod is bound after": (
        PREDICATES,
        "test_a_pod_that_is_bound_too_late_has_its_share_reserved_again",
    ),
    "a pod is bound without": (
        PREDICATES,
        "test_a_pod_that_kube_scheduler_binds_without_a_call_gets_its_share",
    ),
    "annotations `tencent": (
        GAIA,
        "test_predicate_annotations_that_a_user_writes_choose_and_hold_nothing",
    ),
}
QUOTAS, GAIA_QUOTAS = "scheduler/test_gpu_quotas.py", "device_manager/test_gaia_quotas.py"
QUOTA = {
    "has no number": ("deploy/test_gpu_quota_rules.py", "test_anything_else_is_refused"),
    "names a model": (QUOTAS, "test_a_limit_of_a_model_that_is_not_there_says_so"),
    "is lowered": (QUOTAS, "test_a_limit_that_is_lowered_ends_nothing_and_admits_nothing"),
    "comes after": (QUOTAS, "test_a_quota_counts_what_is_older_than_itself"),
    "is a ConfigMap": (GAIA_QUOTAS, "test_what_is_not_valid_changes_nothing_and_is_reported"),
    "is in a ConfigMap": (GAIA_QUOTAS, "test_a_namespace_that_comes_later_gets_its_quota"),
    "`gaia`": (GAIA_QUOTAS, "test_a_quota_that_somebody_changed_is_put_right"),
    "is beside": (QUOTAS, "test_the_stricter_of_both_kinds_of_quota_wins"),
}
LINKS = "api/test_link_matrix.py"
TOPOLOGY = {
    "sysfs": (
        "node/gpus/test_sysfs.py",
        "test_what_is_neither_a_node_nor_a_list_of_cpus_is_unknown",
    ),
    "NVML reports": (LINKS, "test_a_link_that_means_nothing_here_leaves_a_matrix_that_is_one"),
    "a GPUNode has": (
        LINKS,
        "test_of_links_that_contradict_each_other_the_farthest_counts_in_any_order",
    ),
    "two GPUs": (LINKS, "test_a_gpu_has_the_row_of_its_index_unless_another_one_has_that_too"),
    "a GPUNode without": (
        LINKS,
        "test_a_node_that_told_of_no_link_or_of_too_many_gpus_has_no_matrix",
    ),
    "a matrix": (
        "core/topology/test_reading.py",
        "test_a_matrix_that_is_none_is_refused_with_the_reason",
    ),
}


def rows(page: str, heading: str) -> list[str]:
    """The first cells of the only table under a heading."""
    text = (DOCS / page).read_text()
    section = re.split(rf"\n##+ {re.escape(heading)}\n", text)[1].split("\n## ")[0]
    cells: list[str] = re.findall(r"^\| (.*?) \|", section, flags=re.MULTILINE)
    return cells[1:]


@pytest.mark.parametrize(
    ("page", "heading", "cases"),
    [
        ("gpushare.md", "What is refused", GPUSHARE),
        ("extender.md", "What bad input gets", EXTENDER),
        ("vcuda.md", "What is refused", VCUDA),
        ("vcuda.md", "Keep a kube-scheduler that calls gpu-admission", FILTER),
        ("quotas.md", "What a quota may get wrong", QUOTA),
        ("topology.md", "What a machine may get wrong", TOPOLOGY),
    ],
)
def test_each_row_has_a_test(page: str, heading: str, cases: dict[str, tuple[str, str]]) -> None:
    found = rows(page, heading)
    assert len(found) == len(cases)
    for row, (beginning, (file, name)) in zip(found, cases.items(), strict=True):
        assert row.startswith(beginning)
        defined = ast.walk(ast.parse((TESTS / file).read_text()))
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        assert name in {each.name for each in defined if isinstance(each, kinds)}, row
