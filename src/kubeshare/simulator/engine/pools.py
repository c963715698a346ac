"""Pools of vGPUs, by the core's arithmetic on the virtual clock."""

from collections import defaultdict

from kubeshare.core.ledger.device import FreeGpu
from kubeshare.core.ledger.index.node_devices import NodeDevices
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.pool import IdleVGPU, NodePool, PoolSettings, plan


class Pools:
    """Gives idle vGPUs back to their nodes when the pool policy says so.

    Args:
        ledger: its idle devices are removed, and their GPUs are free then.
        keep_s: for how long an idle vGPU is kept.
    """

    def __init__(self, ledger: Ledger, keep_s: float) -> None:
        self._ledger = ledger
        self._settings = PoolSettings(keep=keep_s)
        self._devices = ledger.index(NodeDevices)
        self._idle_since: dict[str, dict[str, float]] = defaultdict(dict)  # node -> id -> time

    def review(self, node: str, now: float) -> float | None:
        """Do what the pool policy says about a node.

        Returns:
            after how many seconds it may say something else; None if never.
        """
        idle_since = self._idle_since[node]
        devices = self._devices.on(node)
        idle = {device.id for device in devices if device.idle}
        for gone in idle_since.keys() - idle:
            del idle_since[gone]
        for device_id in idle:
            idle_since.setdefault(device_id, now)
        pool = NodePool(
            held=len(devices) - len(idle),
            idle=tuple(
                # Rounded, or a vGPU could be short of its time by less than a clock tick.
                IdleVGPU(id=each, seconds=round(now - since, 6))
                for each, since in idle_since.items()
            ),
            free=len(self._ledger.nodes[node].free),
        )
        planned = plan(pool, self._settings)
        for device_id in planned.release:
            device = self._ledger.devices[device_id]
            self._ledger.remove_device(device_id)
            freed = FreeGpu(device.model, device.memory_bytes)
            self._ledger.set_free(node, (*self._ledger.nodes[node].free, freed))
            del idle_since[device_id]
        return planned.again
