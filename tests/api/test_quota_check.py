"""The second look at quotas, after the holders of a demand are written."""

from fakes import objects
from kubeshare.api.quotas.policy import Quotas
from kubeshare.api.quotas.usage_check import QuotaCheck
from kubeshare.api.state.namespace_usage import Usage, Where
from kubeshare.api.types.v1 import VGPU, Holder, VGPUSpec, VGPUStatus
from kubeshare.core.demand import Demand
from kubeshare.core.quota.charge import Held
from kubeshare.core.quota.rows import Place, Quota
from kubeshare.kube.meta import ObjectMeta


def check(*rows: Quota) -> QuotaCheck:
    quotas = Quotas(by_model=lambda namespace: rows if namespace == "a" else ())
    return QuotaCheck(quotas, lambda node, model, group: Place(f"of {node}", "", model, group))


def demand(**fields: str) -> Demand:
    return Demand(**({"uid": "d", "name": "d", "namespace": "a"} | fields))  # type: ignore[arg-type]


def vgpu(model: str) -> VGPU:
    held: Holder = objects.holder("d", 500_000)
    return VGPU(
        metadata=ObjectMeta(name="v"),
        spec=VGPUSpec(node_name="n1", model=model),
        status=VGPUStatus(holders=(held,)),
    )


def usage(**held: tuple[int, int]) -> Usage:
    """Model (and group after ``_of_``) → micros and number of holders on node n1."""
    places = {Where("n1", *_split(key)): amounts for key, amounts in held.items()}
    micros = {at: amount for at, (amount, _) in places.items()}
    return Usage(Held(), micros, {at: number for at, (_, number) in places.items()})


def _split(key: str) -> tuple[str, str]:
    model, _, group = key.partition("_of_")
    return model, group


ROW = Quota(namespace="a", model="V100", micros=1_000_000, name="GPUQuota gpus")


def test_what_fits_with_what_others_wrote_stays() -> None:
    assert check(ROW).exceeded(demand(), [vgpu("V100")], usage(V100=(1_000_000, 2))) == ""


def test_a_millionth_too_much_is_named_with_numbers() -> None:
    words = check(ROW).exceeded(demand(), [vgpu("V100")], usage(V100=(1_500_000, 3)))
    assert words == "GPUQuota gpus is 1 V100 GPUs: 1.5 held, 0 asked"


def test_too_much_of_another_model_is_others_concern() -> None:
    rows = (ROW, Quota(namespace="a", model="M40"))
    held = usage(V100=(500_000, 1), M40=(500_000, 1))
    assert check(*rows).exceeded(demand(), [vgpu("V100")], held) == ""


def test_the_later_of_two_on_different_models_gives_way() -> None:
    held = usage(V100_of_g=(500_000, 1), M40_of_g=(500_000, 1))
    words = check().exceeded(demand(group="g"), [vgpu("V100")], held)
    assert words == "group g is on M40"


def test_of_a_group_that_was_spread_before_the_model_of_the_decision_stays() -> None:
    held = usage(M40_of_g=(500_000, 2), V100_of_g=(500_000, 1))
    assert check().exceeded(demand(group="g"), [vgpu("M40")], held) == ""


def test_a_service_is_free_where_no_row_concerns_it() -> None:
    held = usage(V100_of_s=(500_000, 1), M40_of_s=(500_000, 1))
    assert check().exceeded(demand(service="s"), [vgpu("V100")], held) == ""
    assert check(ROW).exceeded(demand(service="s"), [vgpu("V100")], held) == "group s is on M40"


def test_only_demands_with_quotas_or_a_group_are_looked_at() -> None:
    assert check(ROW).applies(demand())
    assert check().applies(demand(group="g"))
    assert not check().applies(demand(service="s"))
