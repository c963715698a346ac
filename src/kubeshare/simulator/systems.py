"""The systems that a simulation compares, by name.

Those of the core are the production policies. Every other one is a baseline: a policy of the
same interface, and what becomes of a demand in that system before it is placed.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import msgspec

from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.errors import UnknownPolicyError
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import BUILT_IN, Policy, policy
from kubeshare.core.policies.guard import failure
from kubeshare.core.units import MICROS, Memory
from kubeshare.simulator.baselines.at_random import RandomNodes
from kubeshare.simulator.baselines.fgd import Fragmentation, kinds_in
from kubeshare.simulator.baselines.fits import Fit, first_fit
from kubeshare.simulator.baselines.packing import (
    DotProduct,
    gpu_clustering,
    gpu_packing,
    kinds_of_jobs,
)
from kubeshare.simulator.baselines.ranked import RankedNodes
from kubeshare.simulator.baselines.round_robin import RoundRobin, promised
from kubeshare.simulator.cluster import SimulatedNode, gpu_count
from kubeshare.simulator.engine.host_room import HostRoom
from kubeshare.simulator.errors import PolicyError, SimulationError
from kubeshare.simulator.gradient.policy import bound_of
from kubeshare.simulator.gradient.recent import RecentGradient
from kubeshare.simulator.jobs import HostRequest, Job


class System(msgspec.Struct, frozen=True, kw_only=True):
    """What places demands.

    Attributes:
        name: as the user gives it.
        policy: where a demand is placed.
        adapt: what a demand of a job becomes in this system.
        native: whether pods get their GPUs from Kubernetes itself, so that none is opened as a
            vGPU first.
        owned: whether it knows only GPUs that are all vGPUs.
        attach: called once with the empty cluster.
        node_for: the node of a job that asks for no GPU; None leaves it to kube-scheduler.
        bound: the part of all GPUs that no placement of the workload exceeds; 1 if not known.
    """

    name: str
    policy: Policy
    adapt: Callable[[Demand], Demand] = lambda demand: demand
    native: bool = False
    owned: bool = False
    attach: Callable[[Ledger, HostRoom | None], None] = lambda *_: None
    node_for: Callable[[HostRequest], str | None] | None = None
    bound: float = 1.0


class Setting(msgspec.Struct, frozen=True):
    """What a baseline may know before the run: the seed, the nodes, and the workload."""

    seed: int
    nodes: Sequence[SimulatedNode] = ()
    jobs: Callable[[int], Iterable[Job]] = lambda _: ()


Baseline: TypeAlias = Callable[[Setting], System]


def whole_gpus(demand: Demand) -> Demand:
    """A demand in Kubernetes without sharing: as many whole GPUs, and no labels of GPUs."""
    return msgspec.structs.replace(
        unlabelled(demand),
        request_micros=MICROS,
        limit_micros=MICROS,
        limit_alone_micros=None,
        memory=Memory(micros=MICROS),
        proportional=False,
    )


def unlabelled(demand: Demand) -> Demand:
    """A demand without the labels, which only KubeShare knows."""
    return msgspec.structs.replace(demand, affinity="", anti_affinity="", exclusion="")


def _whole(setting: Setting) -> System:
    del setting
    # Among whole GPUs that are all alike, best fit leaves the most nodes empty, which is the
    # best that Kubernetes can be configured to do.
    return System(name="whole", policy=policy("locality"), adapt=whole_gpus, native=True)


def _round_robin(setting: Setting) -> System:
    del setting
    return System(name="round-robin", policy=RoundRobin(), adapt=promised, native=True, owned=True)


def _ranked(name: str, nodes: RankedNodes) -> System:
    return System(
        name=name,
        policy=nodes,
        adapt=unlabelled,
        owned=True,
        attach=nodes.attach,
        node_for=nodes.node_for,
    )


def _first_fit(setting: Setting) -> System:
    del setting
    return _ranked("first-fit", RankedNodes(first_fit))


def _largest(setting: Setting) -> tuple[int, int]:
    """The GPUs, and the thousandths of CPUs, of the largest node."""
    gpus = max((node.gpus for node in setting.nodes), default=1)
    return gpus, max((node.host.cpu_millis for node in setting.nodes if node.host), default=0)


def _fit(name: str, setting: Setting, *, worst: bool) -> System:
    gpus, cpus = _largest(setting)
    return _ranked(name, RankedNodes(Fit(worst=worst, most_gpus=gpus, most_cpu_millis=cpus)))


def _best_fit(setting: Setting) -> System:
    return _fit("best-fit", setting, worst=False)


def _worst_fit(setting: Setting) -> System:
    return _fit("worst-fit", setting, worst=True)


def _dot_product(setting: Setting) -> System:
    return _ranked("dot-product", RankedNodes(DotProduct(*_largest(setting))))


def _gpu_packing(setting: Setting) -> System:
    del setting
    return _ranked("gpu-packing", RankedNodes(gpu_packing))


def _gpu_clustering(setting: Setting) -> System:
    del setting
    return _ranked("gpu-clustering", RankedNodes(gpu_clustering, kinds_of_jobs))


def _random(setting: Setting) -> System:
    return _ranked("random", RandomNodes(setting.seed))


def _fgd(setting: Setting) -> System:
    return _ranked("fgd", RankedNodes(Fragmentation(kinds_in(setting.jobs(setting.seed)))))


def _gradient(setting: Setting) -> System:
    ranked = _ranked("gradient", RecentGradient())
    bound = bound_of(setting.jobs(setting.seed), gpu_count(setting.nodes))
    return msgspec.structs.replace(ranked, adapt=lambda demand: demand, bound=bound)


BASELINES: dict[str, Baseline] = {
    "whole": _whole,
    "round-robin": _round_robin,
    "first-fit": _first_fit,
    "best-fit": _best_fit,
    "worst-fit": _worst_fit,
    "dot-product": _dot_product,
    "gpu-packing": _gpu_packing,
    "gpu-clustering": _gpu_clustering,
    "random": _random,
    "fgd": _fgd,
    "gradient": _gradient,
}
"""Name → the baseline."""


def system(name: str, setting: Setting) -> System:
    """The system of a name: a baseline, or a policy of the core or of an installed package.

    Args:
        name: its name.
        setting: what it may know.

    Raises:
        SimulationError: there is none of this name.
    """
    check_name(name)
    if name in BASELINES:
        return BASELINES[name](setting)
    return System(name=name, policy=policy(name))


def check_name(name: str) -> None:
    """Check that a system has the name, and that its package can be loaded.

    Raises:
        SimulationError: it is not so.
    """
    if name in BASELINES:
        return
    try:
        policy(name)
    except UnknownPolicyError as error:
        raise SimulationError(
            f"{error}, and the baselines {', '.join(sorted(BASELINES))}"
        ) from error


def names() -> list[str]:
    """The names of all systems but those of installed packages."""
    return [*BUILT_IN, *BASELINES]


def checked(system: System, room: HostRoom | None) -> Policy:
    """The policy of a system, which sees only nodes with room for CPU and memory.

    What it decides is checked as far as the ledger does not.

    Args:
        system: the system.
        room: CPU and memory of the nodes; None if the simulation ignores them.

    Raises:
        PolicyError: from the policy: it raised an error, or chose a node that it may not use.
    """

    def decide(ledger: Ledger, demand: Demand) -> Decision:
        request = room.requests.get(demand.service) if room else None
        if room is not None and request is not None:
            nodes = room.candidates(request)
            if not nodes:
                return Decision(outcome="pending", reasons={"nodes": f"none has {request.key}"})
            allowed = nodes if demand.nodes is None else nodes & demand.nodes
            demand = msgspec.structs.replace(demand, nodes=allowed)
        try:
            decision = system.policy(ledger, demand)
        except Exception as error:
            words = f"{type(error).__name__}: {error}"
            raise PolicyError(f"policy {system.name} failed at {demand.name}: {words}") from error
        _check(system.name, demand, decision)
        if failed := failure(decision):
            raise PolicyError(f"{failed}; it was asked about {demand.name}")
        return decision

    return decide


def _check(name: str, demand: Demand, decision: Decision) -> None:
    if not isinstance(decision, Decision):
        raise PolicyError(f"policy {name} answered {demand.name} with no Decision: {decision!r}")
    elsewhere = demand.nodes is not None and decision.node not in demand.nodes
    if decision.outcome == "bound" and elsewhere:
        raise PolicyError(
            f"policy {name} placed {demand.name} on {decision.node}, "
            "where it has no room or may not go"
        )
