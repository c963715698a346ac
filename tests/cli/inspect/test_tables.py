"""The tables are those of Alibaba's tool, as it printed them."""

from kubeshare.cli.inspect.tables import details, summary
from kubeshare.cli.inspect.usage import NodeUsage, PodUsage


def node(name: str, address: str, per_gpu: int, *pods: PodUsage, unit: str = "MiB") -> NodeUsage:
    """A node with two GPUs."""
    return NodeUsage(
        name=name,
        address=address,
        unit=unit,
        owned=True,
        models={0: "V100", 1: "V100"},
        totals={0: per_gpu, 1: per_gpu},
        total=2 * per_gpu,
        pods=pods,
    )


def pod(name: str, gpu: int | None, units: int) -> PodUsage:
    gpus = {} if gpu is None else {gpu: units}
    return PodUsage(namespace="default", name=name, gpus=gpus, pending=units if gpu is None else 0)


PODS = (pod("p0", 0, 4069), pod("term", 0, 10), pod("p1", 1, 8138), pod("pend", None, 100))
B1 = node("b1", "10.0.0.1", 16276, *PODS)
N3 = node(
    "n3",
    "10.0.0.2",
    16276,
    PodUsage(namespace="default", name="multi", gpus={0: 100, 1: 100}),
)

SUMMARY = """\
NAME  IPADDRESS  GPU0(Allocated/Total)  GPU1(Allocated/Total)  PENDING(Allocated)  GPU Memory(MiB)
b1    10.0.0.1   4079/16276             8138/16276             100                 12317/32552
n3    10.0.0.2   100/16276              100/16276                                  200/32552
----------------------------------------------------------------------
Allocated/Total GPU Memory In Cluster:
12517/65104 (19%)"""

DETAILS = """\
NAME:       b1
IPADDRESS:  10.0.0.1

NAME         NAMESPACE    GPU0(Allocated)  GPU1(Allocated)  Pending(Allocated)
p0           default      4069             0                0
term         default      10               0                0
p1           default      0                8138             0
pend         default      0                0                100
Allocated :  12317 (37%)
Total :      32552
-----------------------------------------------------------------------------------------------


Allocated/Total GPU Memory In Cluster:  12317/32552 (37%)"""


def test_the_summary_is_that_of_the_published_tool() -> None:
    assert summary([B1, N3]) == SUMMARY


def test_the_details_are_those_of_the_published_tool() -> None:
    assert details([B1]) == DETAILS


def test_there_is_no_column_for_pending_pods_where_there_are_none() -> None:
    first = summary([node("n1", "10.0.0.1", 15, pod("a", 0, 3), pod("b", 0, 3), unit="GiB")])
    assert first.splitlines()[:2] == [
        "NAME  IPADDRESS  GPU0(Allocated/Total)  GPU1(Allocated/Total)  GPU Memory(GiB)",
        "n1    10.0.0.1   6/15                   0/15                   6/30",
    ]
    assert first.splitlines()[-1] == "6/30 (20%)"


def test_a_wide_table_says_who_owns_the_gpus_and_their_models() -> None:
    lines = summary([B1], wide=True).splitlines()
    assert lines[0].endswith("GPU Memory(MiB)  OWNED  MODELS")
    assert lines[1].endswith("12317/32552      yes    V100")
    assert lines[2] == "-" * 70


def test_without_nodes_there_is_a_header_and_a_sum() -> None:
    assert summary([]).splitlines()[0] == "NAME  IPADDRESS  GPU Memory()"
    assert summary([]).splitlines()[-1] == "0/0 (0%)"
    assert details([]).splitlines()[-1] == "Allocated/Total GPU Memory In Cluster:  0/0 (0%)"


def test_a_node_without_pods_has_a_table_of_its_gpus() -> None:
    assert "Allocated :  0 (0%)" in details([node("n1", "10.0.0.1", 15)])


def test_only_details_of_nodes_with_pending_pods_have_their_column() -> None:
    second = node("n2", "10.0.0.2", 16276, pod("a", 1, 3))
    headers = [line for line in details([B1, second]).splitlines() if "NAMESPACE" in line]
    assert ["Pending(Allocated)" in header for header in headers] == [True, False]
    assert "PENDING(Allocated)" in summary([B1, second])
