"""Random demands and clusters, drawn small so that they collide often."""

from hypothesis import strategies as st

from kubeshare.core.demand import Demand, Memory
from kubeshare.core.ledger.device import Device, FreeGpu, Node

SHARES = st.sampled_from([0, 1, 100_000, 300_000, 333_333, 500_000, 700_000, 1_000_000])
SIZES = st.sampled_from([8, 10, 16])
MODELS = st.sampled_from(["", "V100", "A100"])
LABELS = st.sampled_from(["", "", "red", "blue"])
NODE_NAMES = ("n1", "n2", "n10")
DEVICE_IDS = ("A", "B", "2", "10", "vgpu-a")

memories = st.builds(lambda size: Memory(bytes=size), st.integers(0, 18)) | st.builds(
    lambda micros: Memory(micros=micros), SHARES
)
free_gpus = st.builds(FreeGpu, MODELS, SIZES)
nodes = st.builds(
    Node,
    st.sampled_from(NODE_NAMES),
    st.lists(free_gpus, max_size=3).map(tuple),
    st.frozensets(free_gpus, max_size=2),
)
devices = st.builds(
    Device,
    id=st.sampled_from(DEVICE_IDS),
    node=st.sampled_from(NODE_NAMES),
    model=MODELS,
    memory_bytes=SIZES,
    healthy=st.sampled_from([True, True, True, False]),
    fenced=st.sampled_from([False, False, False, True]),
)


def demands(
    names: st.SearchStrategy[str], **fixed: st.SearchStrategy[object]
) -> "st.SearchStrategy[Demand]":
    """Demands of which everything is drawn but what is fixed."""
    drawn: dict[str, st.SearchStrategy[object]] = {
        "request_micros": SHARES,
        "memory": memories,
        "affinity": LABELS,
        "anti_affinity": LABELS,
        "exclusion": LABELS,
        "device_id": st.sampled_from(["", "", "", "", "A", "mine", "vgpu-a", "vgpu-b"]),
        "count": st.sampled_from([1] * 9 + [2]),
        "model": MODELS,
        "nodes": st.none() | st.frozensets(st.sampled_from(NODE_NAMES)),
    } | fixed
    return names.flatmap(
        lambda name: st.builds(Demand, uid=st.just(name), name=st.just(name), **drawn)
    )
