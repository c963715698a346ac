"""Gets placeholders on certain GPUs of nodes where a device plugin chooses.

Two kinds of vGPUs need a certain GPU: one in use on a node that is given back needs its own; one
whose placeholder got a GPU of another model needs one of its model. What is done next follows from
the objects alone (:mod:`.gpu_selection`), so a restarted program goes on. One vGPU may take
``SELECTION_SECONDS``; if it has not got its GPU by then, no pod keeps a GPU for it during a pause,
which doubles with each attempt.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from kubeshare.api import holders
from kubeshare.api.state.ledger_builder import DELETING
from kubeshare.api.types.constants import CONDITION_OWNED, CONDITION_SHAREABLE
from kubeshare.api.types.core_v1 import Node, Pod
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import VGPU, GPUNode
from kubeshare.device_manager.context import Context
from kubeshare.device_manager.placeholder.fillers import Fillers
from kubeshare.device_manager.placeholder.gpu_selection import Filler, Gpu, Seeker, Step, plan
from kubeshare.device_manager.placeholder.pods import is_misplaced
from kubeshare.device_manager.pool.event_handlers import node_differs
from kubeshare.kube.cache.store import Change
from kubeshare.kube.conditions import find_condition, set_condition
from kubeshare.kube.controller.controller import Controller, RequeueAfter, own_key
from kubeshare.kube.controller.pending import NotBefore, PendingSince
from kubeshare.kube.controller.resync import add_resync
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.meta import Condition, Key

SELECTION_SECONDS: Final = 60.0
"""Seconds in which one vGPU has to get its GPU, and of the first pause after that."""
MAX_PAUSE_SECONDS: Final = 3600.0
"""Longest pause between two attempts."""


class GpuSelector:
    """Creates and deletes filler pods, and the placeholders that need a certain GPU.

    Args:
        context: the state and the services that it uses.
        fillers: the filler pods.
    """

    def __init__(self, context: Context, fillers: Fillers) -> None:
        self._informers = context.informers
        self._nodes = context.informers.nodes.store
        self._gpunodes = context.informers.gpunodes.store
        self._cluster_state = context.cluster_state
        self._pool = context.pool
        self._placeholders = context.placeholders
        self._wall_clock = context.wall_clock
        self._fillers = fillers
        self._seeking: PendingSince[str] = PendingSince()  # nodes; the uid is the vGPU's
        self._failures: Counter[tuple[str, str]] = Counter()  # by node and uid of the vGPU
        self._pauses: NotBefore[tuple[str, str]] = NotBefore()

    def register(self, program: Program) -> None:
        """Run this controller in a program, with the watches that trigger it."""
        informers = self._informers
        controller: Controller[Key] = Controller("gpu-selection", self.reconcile)
        controller.watch(informers.gpunodes, own_key)
        controller.watch(informers.nodes, own_key, when=node_differs)
        controller.watch(informers.pods, _node_of)
        controller.watch(informers.vgpus, lambda vgpu: [Key("", vgpu.spec.node_name)], _concerns)
        program.add_controller(controller)
        add_resync(program, controller, self._nodes.snapshot)

    async def reconcile(self, key: Key) -> RequeueAfter | None:
        """Take the next step on one node."""
        node, found = self._nodes.by_key(key), self._gpunodes.get(key.name)
        fillers = self._fillers.of(key.name)
        if node is None or found is None:
            self._seeking.forget(key.name)
            self._forget_all_but(key.name, [])
            for pod in fillers:
                await self._fillers.remove(pod)
            return None
        candidates = self._candidates(node, found)
        self._forget_all_but(key.name, candidates)
        pauses = [self._pauses.remaining(_id(vgpu)) for vgpu in candidates]
        seeking = [vgpu for vgpu, left in zip(candidates, pauses, strict=True) if not left]
        waits = [left for left in pauses if left]
        if seeking:
            first = seeking[0]
            left = self._seeking.remaining(key.name, SELECTION_SECONDS, first.metadata.uid)
            if not left:
                await self._pause(first)
                return RequeueAfter(0.0)
            waits.append(left)
        else:
            self._seeking.forget(key.name)
        if seeking or fillers:
            await self._do(node, fillers, self._plan(node, found, fillers, seeking))
        return RequeueAfter(min(waits)) if waits else None

    def _candidates(self, node: Node, found: GPUNode) -> list[VGPU]:
        """The vGPUs of a node that need a certain GPU, by name."""
        if not node.whole_gpus:
            return []
        returned = is_given_back(node, found)
        pool = self._pool.on_node(node.metadata.name)
        return [
            vgpu
            for vgpu in sorted(pool, key=lambda vgpu: vgpu.metadata.name)
            if vgpu.status.phase != DELETING
            and vgpu.status.holders
            and (is_misplaced(vgpu) or (returned and vgpu.spec.is_static))
        ]

    def _seeker(self, vgpu: VGPU, found: GPUNode) -> Seeker:
        if vgpu.spec.uuid:
            accepts = frozenset([vgpu.spec.uuid])
        else:
            fits = [
                gpu
                for gpu in found.spec.devices
                if vgpu.spec.model in ("", gpu.model) and gpu.memory_bytes >= vgpu.spec.memory_bytes
            ]
            accepts = frozenset(gpu.uuid for gpu in fits)
        shareable = find_condition(vgpu.status.conditions, CONDITION_SHAREABLE)
        return Seeker(
            vgpu=vgpu.metadata.name,
            accepts=accepts,
            has_placeholder=self._placeholders.of(vgpu.metadata.name) is not None,
            misplaced=shareable is not None and shareable.status == "False",
        )

    def _plan(self, node: Node, found: GPUNode, fillers: list[Pod], seeking: list[VGPU]) -> Step:
        name = node.metadata.name
        taken = {
            vgpu.spec.uuid
            for vgpu in self._pool.on_node(name)
            if vgpu.spec.uuid and not vgpu.spec.is_static
        }
        gpus = [
            Gpu(uuid=gpu.uuid, filler=gpu.filler)
            for gpu in found.spec.devices
            if gpu.gives_shares and not gpu.in_use and gpu.uuid not in taken
        ]
        used = sum(pod.whole_gpus for pod in self._cluster_state.whole_gpu_pods(name))
        names = {pod.metadata.name for pod in fillers}
        reported = sum(gpu.in_use or gpu.filler in names for gpu in found.spec.devices)
        return plan(
            [self._seeker(vgpu, found) for vgpu in seeking],
            gpus,
            [_filler(pod) for pod in fillers],
            node.whole_gpus - used,
            unreported=max(0, used - reported - len(taken)),
        )

    async def _do(self, node: Node, fillers: list[Pod], step: Step) -> None:
        for pod in fillers:
            if pod.metadata.name in step.remove or pod.terminal:
                await self._fillers.remove(pod)
        for _ in range(step.fill):
            await self._fillers.create(node.metadata.name)
        if step.release:
            await self._release(step.release)
        created = self._pool.get(step.create) if step.create else None
        if created is not None:
            await self._placeholders.create(created, by_claim=False)

    async def _release(self, name: str) -> None:
        """Delete the placeholder that got a GPU of another model, once that is recorded.

        The condition becomes Unknown: the node agent sets it again if the next placeholder got a
        wrong GPU too.
        """

        def seeks(vgpu: VGPU) -> list[holders.Operation] | None:
            shareable = find_condition(vgpu.status.conditions, CONDITION_SHAREABLE)
            if vgpu.spec.uuid or shareable is None or shareable.status != "False":
                return None
            wanted = Condition(
                type=CONDITION_SHAREABLE,
                status="Unknown",
                reason=Reason.OTHER_MODEL,
                message=f"{shareable.message}: it gets another one",
            )
            conditions, _ = set_condition(vgpu.status.conditions, wanted, self._wall_clock())
            return holders.set_conditions(vgpu, conditions)

        pod = self._placeholders.of(name)
        if pod is not None and pod.metadata.deletion_timestamp is None:
            await self._placeholders.remove(pod)
        elif pod is None:
            await self._pool.update(name, seeks)

    async def _pause(self, vgpu: VGPU) -> None:
        """Keep no GPU for a vGPU that did not get the right one in time."""
        key = _id(vgpu)
        pause = SELECTION_SECONDS * 2.0 ** min(self._failures[key], 16)
        self._failures[key] += 1
        self._pauses.delay(key, min(MAX_PAUSE_SECONDS, pause))
        pod = self._placeholders.of(vgpu.metadata.name)
        # The watch may lag: by now the node may have recorded the placeholder, and pods need it.
        live = await self._pool.refresh(vgpu.metadata.name)
        recorded = live.spec.placeholder_uid if live else ""
        if pod is not None and pod.metadata.uid != recorded:
            await self._placeholders.remove(pod)

    def _forget_all_but(self, node: str, candidates: list[VGPU]) -> None:
        """Drop what is known about vGPUs that have their GPU, or are gone."""
        left = {_id(vgpu) for vgpu in candidates}
        for key in [key for key in self._failures if key[0] == node and key not in left]:
            del self._failures[key]
            self._pauses.forget(key)


def _id(vgpu: VGPU) -> tuple[str, str]:
    return vgpu.spec.node_name, vgpu.metadata.uid


def is_given_back(node: Node, found: GPUNode) -> bool:
    """Whether the GPUs in use of an owned node get placeholders: it is cordoned meanwhile."""
    owned = find_condition(found.status.conditions, CONDITION_OWNED)
    return node.is_closed and owned is not None and owned.reason == Reason.RELEASING


def _filler(pod: Pod) -> Filler:
    metadata = pod.metadata
    ending = metadata.deletion_timestamp is not None or pod.terminal
    return Filler(name=metadata.name, bound=bool(pod.spec.node_name), ending=ending)


def _node_of(pod: Pod) -> Iterable[Key]:
    """The node of a pod that has or gets whole GPUs of it."""
    if pod.filler_of:
        return [Key("", pod.filler_of)]
    return [Key("", pod.spec.node_name)] if pod.whole_gpus and pod.spec.node_name else []


def _concerns(change: Change[VGPU]) -> bool:
    """Whether a vGPU may need a certain GPU, or did so before."""
    states = (change.object,) if change.old is None else (change.old, change.object)
    return any(vgpu.spec.is_static or is_misplaced(vgpu) for vgpu in states)
