"""The life that is told on the lab, and the points of it that meet a trouble."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from e2e.space import REST, Space
from e2e.stage import DEVICE_MANAGER, NODE_AGENT, SCHEDULER, Stage, eventually
from kubeshare.api.types.constants import NAMESPACE
from robustness.fault_matrix.matrix import Tally
from robustness.lab_faults.programs import ACCOUNTS, Programs
from robustness.lab_faults.proxy import Proxy, kubeconfig_through
from robustness.lab_faults.troubles import KILLING, TROUBLES
from robustness.lab_faults.watcher import Watcher

PATIENCE: Final = 90.0
"""Seconds that each step of a life may take."""
AT_ONCE: Final = 7
"""How many writes of one telling meet its trouble."""
AGENTS: Final = "agents"
SAID: Final = 4000
"""How many characters of what programs said last are shown."""
_REPLICAS: Final = 2


class Troubled(NamedTuple):
    """A lab whose programs reach the API server through the proxy only."""

    space: Space
    proxy: Proxy
    programs: Programs


class Telling(NamedTuple):
    """One telling of the life: the trouble, and the writes (from 1) that meet it."""

    trouble: str
    writes: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.trouble}, writes {', '.join(map(str, self.writes))}"


@contextmanager
def troubled(space: Space) -> Iterator[Troubled]:
    """Have the programs of a lab work through a proxy meanwhile."""
    stage = space.stage
    layout, api = stage.lab.layout, stage.lab.api
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        # Pods do not reach this machine; they and it both reach the control plane.
        init = stage.lab.control_plane.init()
        assert init is not None, "the lab is up"
        network = Path(f"/proc/{init.pid}/ns/net")
        proxy = Proxy(api.authority, api.settings.url, layout.api_address, network)
        stack.callback(proxy.stop)
        kubeconfigs = {}
        for name, account in ACCOUNTS.items():
            user = f"system:serviceaccount:{NAMESPACE}:{account}"
            groups = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}")
            original = api.kubeconfig_for(user, groups)
            identity = api.authority.identity(original.stem, user, groups)
            url = f"https://{layout.api_address}:{proxy.add_route(name, identity)}"
            kubeconfigs[name] = kubeconfig_through(original, folder / name, url)
        stack.enter_context(_without_deployments(stage))
        stack.enter_context(_agents_through(stage, layout.api_address, proxy.add_route(AGENTS)))
        programs = Programs(kubeconfigs, folder)
        stack.callback(programs.stop)
        yield Troubled(space, proxy, programs)


def count_writes(lab: Troubled) -> tuple[int, int]:
    """Tell the life without trouble: how many writes it has, and how many without the agents'."""
    counts = []
    for only in (None, tuple(ACCOUNTS)):
        lab.proxy.arm(only=only)
        _tell(lab)
        counts.append(lab.proxy.writes)
    return counts[0], counts[1]


def tellings(writes: int, writes_of_two: int, rounds: int) -> Iterator[Telling]:
    """Some tellings of each trouble, so that all writes are met in turn.

    Args:
        writes: of the life.
        writes_of_two: those of scheduler and device manager.
        rounds: how often each trouble comes.
    """
    for number, trouble in enumerate(TROUBLES):
        of = writes_of_two if trouble in KILLING else writes
        step = of // AT_ONCE
        for turn in range(rounds):
            first = 1 + (number + turn * len(TROUBLES)) % step
            yield Telling(trouble, tuple(first + each * step for each in range(AT_ONCE)))


def play(
    lab: Troubled, told: Sequence[Telling], say: Callable[[str], object] = lambda _: None
) -> Tally:
    """Tell the life with its troubles; how the points went."""
    total = Tally()
    for telling in told:
        began = time.monotonic()
        tally = _play(lab, telling)
        say(f"{telling}: {tally} ({time.monotonic() - began:.0f} s)")
        total.add(tally)
        if tally.stuck:
            break  # what it has left would be in the way of the next
    return total


def _play(lab: Troubled, telling: Telling) -> Tally:
    trouble = TROUBLES[telling.trouble]
    only = tuple(ACCOUNTS) if telling.trouble in KILLING else None
    tally, stuck = Tally(), ""
    lab.proxy.arm(
        telling.writes, lambda writer: trouble(lab.proxy, lab.programs, writer), only=only
    )
    with Watcher(lab.space.stage) as watcher:
        try:
            _tell(lab)
        except AssertionError as error:
            stuck = str(error)
    tally.tried = lab.proxy.struck
    tally.struck[telling.trouble] = tally.showed[telling.trouble] = lab.proxy.struck
    left = watcher.left(lab.space.name)
    if stuck:
        tally.stuck.append(f"{telling}: {stuck}; left: {left}")
    elif left:
        tally.leaked.append(f"{telling}: {left}")
    tally.overcommitted += [f"{telling}: {wrong}" for wrong in watcher.overcommitted]
    tally.converged = 0 if tally.wrong else tally.tried
    return tally


def _tell(lab: Troubled) -> None:
    """Tell the life.

    Raises:
        AssertionError: something never came true; with what the programs said last.
    """
    try:
        _live(lab.space)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{lab.programs.said()[-SAID:]}") from error


def _live(space: Space) -> None:
    """Two share a GPU, two have one each; one leaves, another comes, all go."""
    for name, gpu in {
        "a": {"request": "0.5", "affinity": "pair"},
        "b": {"request": "0.5", "affinity": "pair"},
        "c": {"request": "0.7"},
        "d": {"request": "0.7"},
    }.items():
        space.share(name, gpu | {"memory": "64Mi"}, REST)
    places = {name: space.ready(name, seconds=PATIENCE) for name in "abcd"}
    assert places["a"] == places["b"]
    assert len(set(places.values())) == len("abcd") - 1
    space.delete("sharepod", "d")
    space.share("e", {"request": "0.7", "memory": "64Mi"}, REST)
    space.ready("e", seconds=PATIENCE)
    space.stage.kubectl("delete", "sharepods", "-n", space.name, "--all", "--wait=false")
    watcher = Watcher(space.stage)
    eventually(
        lambda: not watcher.left(space.name),
        "all to be gone",
        seconds=PATIENCE,
        explain=lambda: str(watcher.left(space.name)),
    )


@contextmanager
def _without_deployments(stage: Stage) -> Iterator[None]:
    """Without the scheduler and the device manager that run in the lab."""
    for component in (SCHEDULER, DEVICE_MANAGER):
        for pod in stage.system_pods(component):
            stage.keep_log(pod["metadata"]["name"])
        _scale(stage, component, 0)
    try:
        yield
    finally:
        for component in (SCHEDULER, DEVICE_MANAGER):
            _scale(stage, component, _REPLICAS)
        for component in (SCHEDULER, DEVICE_MANAGER):
            stage.until_ready(component)


def _scale(stage: Stage, component: str, replicas: int) -> None:
    deployment = f"deployment/kubeshare-{component}"
    stage.kubectl("scale", "-n", NAMESPACE, deployment, f"--replicas={replicas}")
    eventually(lambda: len(stage.system_pods(component)) == replicas, f"{replicas} of {component}")


@contextmanager
def _agents_through(stage: Stage, address: str, port: int) -> Iterator[None]:
    """Have the node agents ask another address for the API server."""
    way = {"KUBERNETES_SERVICE_HOST": address, "KUBERNETES_SERVICE_PORT": str(port)}
    _set_environment(stage, *(f"{name}={value}" for name, value in way.items()))
    try:
        yield
    finally:
        _set_environment(stage, *(f"{name}-" for name in way))


def _set_environment(stage: Stage, *words: str) -> None:
    before = stage.containers(NODE_AGENT)
    for pod in stage.system_pods(NODE_AGENT):
        stage.keep_log(pod["metadata"]["name"])
    program = f"daemonset/kubeshare-{NODE_AGENT}"
    stage.kubectl("set", "env", "-n", NAMESPACE, program, *words)
    stage.kubectl("rollout", "status", "-n", NAMESPACE, program, "--timeout=90s")
    stage.until_ready(NODE_AGENT, but=before)
