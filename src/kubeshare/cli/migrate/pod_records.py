"""Works out the holders of a node's legacy pods. Pure."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from kubeshare.api import pod_state
from kubeshare.api.holder_codec import encode_share
from kubeshare.api.owned_nodes import parts_of, recorded_pods
from kubeshare.api.types.v1 import VGPU, GPUDevice, Holder
from kubeshare.cli.migrate.model import LegacyPod, Record
from kubeshare.cli.migrate.names import shortened
from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import MICROS, format_memory, format_share
from kubeshare.dialects.families import Family
from kubeshare.kube.resources import Raw

MAX_HOLDERS: Final = 128
"""Holders of one vGPU, by its CRD."""
_ELSEWHERE: Final = "is partly recorded on other GPUs than its annotations name now: use --back"


def legacy_pods(
    family: Family,
    found: Sequence[Raw],
    devices: Mapping[int, GPUDevice],
    vgpus: Sequence[VGPU],
    unit: int,
) -> list[LegacyPod]:
    """The legacy pods of a node, sorted by name.

    Args:
        family: their family.
        found: the pods.
        devices: the GPUs of the node by the numbers of their device files.
        vgpus: the vGPUs of the node.
        unit: the bytes of a unit of ``aliyun.com/gpu-mem``.
    """
    reader = _Reader(family, devices, vgpus, unit)
    read = _within_gpus(list(map(reader.read, found)), devices, vgpus)
    return sorted(read, key=lambda pod: pod.title)


class _Reader:
    """Reads the legacy pods of one node."""

    def __init__(
        self, family: Family, devices: Mapping[int, GPUDevice], vgpus: Sequence[VGPU], unit: int
    ) -> None:
        self._family = family
        self._devices = devices
        self._recorded = recorded_pods(vgpus)
        numbers = {gpu.uuid: number for number, gpu in devices.items()}
        self._stored: dict[str, list[Record]] = defaultdict(list)  # by the uid of the pod
        for vgpu in vgpus:
            uuid, number = vgpu.spec.uuid, numbers.get(vgpu.spec.uuid, -1)
            for each in vgpu.status.holders:
                self._stored[each.pod_uid].append(Record(number, uuid, each, stored=True))
        self._unit = unit

    def read(self, raw: Raw) -> LegacyPod:
        """Read one pod."""
        metadata = raw["metadata"]
        uid, namespace, name = (metadata[key] for key in ("uid", "namespace", "name"))
        stored = tuple(self._stored.get(uid, ()))
        if uid in self._recorded:  # what its annotations say by now counts no more
            return LegacyPod(uid, namespace, name, records=stored, recorded=True)
        try:
            records = self._records(raw)
        except InvalidValueError as error:
            return LegacyPod(uid, namespace, name, problem=str(error))
        known = {each.identity for each in records}
        problem = "" if all(each.identity in known for each in stored) else _ELSEWHERE
        return LegacyPod(uid, namespace, name, records=records, problem=problem)

    def _records(self, raw: Raw) -> tuple[Record, ...]:
        only = next(iter(self._devices)) if len(self._devices) == 1 else None
        self._check_family(raw)
        placed = self._family.legacy_placement_of(raw, self._unit, only)
        return tuple(self._record(placed.demand, name, gpu) for name, gpu in placed.gpus)

    def _check_family(self, raw: Raw) -> None:
        if others := parts_of(pod_state.view(raw)) - {*self._family.resources}:
            words = f"asks for {', '.join(sorted(others))} too"
            raise InvalidValueError("spec.containers", words)

    def _record(self, demand: Demand, name: str, gpu: int) -> Record:
        device, share = self._devices.get(gpu), demand.named(name)
        assert share is not None, "a placement names the shares of its demand"
        if device is None:
            known = ", ".join(map(str, sorted(self._devices))) or "none"
            message = f"name GPU {gpu}, and the node has {known}"
            raise InvalidValueError("metadata.annotations", message)
        # No decision of KubeShare: its number is 0, so nothing of the pod is ever preempted.
        entry = encode_share(demand, share, device.memory_bytes, attempt=0)
        holder = replace(entry, pod_uid=demand.uid)
        record = Record(gpu, device.uuid, holder)
        stored = {each.identity for each in self._stored.get(demand.uid, ())}
        return replace(record, stored=record.identity in stored)


def _within_gpus(
    read: Sequence[LegacyPod], devices: Mapping[int, GPUDevice], vgpus: Sequence[VGPU]
) -> list[LegacyPod]:
    """The pods; those on a GPU that has less than they and the present holders have a problem."""
    held = {vgpu.spec.uuid: vgpu.status.holders for vgpu in vgpus}
    records = [record for pod in read if not pod.problem for record in pod.records]
    over: dict[int, str] = {}
    for number, gpu in devices.items():
        new = [each for each in records if each.gpu == number and not each.stored]
        present = held.get(gpu.uuid, ())
        together = [*present, *(each.holder for each in new)]
        if new and (why := _overcommitted(number, gpu, together)):
            over[number] = why
    return [_with_problem(pod, over) for pod in read]


def _overcommitted(number: int, gpu: GPUDevice, together: Sequence[Holder]) -> str:
    memory = sum(each.memory_bytes for each in together)
    compute = sum(each.request_micros for each in together)
    names = shortened({f"{each.namespace}/{each.name}" for each in together})
    if memory > gpu.memory_bytes:
        return (
            f"GPU {number} has {format_memory(gpu.memory_bytes)} of memory, and its pods have "
            f"{format_memory(memory)}: {names}. Delete one of them"
        )
    if compute > MICROS:
        return f"the pods of GPU {number} have {format_share(compute)} of it: {names}. Delete one"
    if len(together) > MAX_HOLDERS:
        return f"GPU {number} has {len(together)} pods, and at most {MAX_HOLDERS} can share it"
    return ""


def _with_problem(pod: LegacyPod, over: Mapping[int, str]) -> LegacyPod:
    found = (over[each.gpu] for each in pod.records if each.gpu in over and not each.stored)
    problem = pod.problem or next(found, "")
    return replace(pod, problem=problem)
