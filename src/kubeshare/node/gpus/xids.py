"""Watches the errors of GPUs that the driver reports as XIDs.

Some XIDs are caused by a program and end with it; the others make the GPU unhealthy. Newer
drivers report when a GPU needs no more recovery, which makes it healthy again. With older
ones it is healthy again after the driver was reloaded or the agent was restarted.
"""

from typing import Any, Final

import pynvml

OF_PROGRAMS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""XIDs that a program causes and that end with it (NVIDIA's device plugin skips the same)."""
EVENTS_MAX: Final = 256
"""The most events of one reading; the others wait for the next."""


class Xids:
    """The errors of a node's GPUs; all calls need an initialised NVML.

    Attributes:
        found: UUID → the XID of the last error, until the GPU has recovered.
    """

    def __init__(self) -> None:
        self.found: dict[str, int] = {}
        self._events: Any = None
        self._watched: set[str] = set()

    def read(self, handles: dict[str, Any]) -> None:
        """Watch all GPUs, given by UUID and NVML handle, and read the reported errors."""
        try:
            if self._events is None:
                self._events = pynvml.nvmlEventSetCreate()
            for uuid in handles.keys() - self._watched:
                self._watched.add(uuid)
                self._watch(handles[uuid])
            self._read()
        except pynvml.NVMLError:
            return  # this driver has no events
        for uuid in [uuid for uuid in self.found if _has_recovered(handles.get(uuid))]:
            del self.found[uuid]

    def forget(self) -> None:
        """Forget everything: NVML was shut down, and with it the watch."""
        self._events = None
        self._watched.clear()
        self.found.clear()

    def _watch(self, handle: Any) -> None:
        pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, self._events)

    def _read(self) -> None:
        for _ in range(EVENTS_MAX):
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, 0)
            except pynvml.NVMLError_Timeout:
                return
            xid = int(event.eventData)
            if xid not in OF_PROGRAMS:
                uuid = pynvml.nvmlDeviceGetUUID(event.device)
                self.found[uuid if isinstance(uuid, str) else uuid.decode()] = xid


def _has_recovered(handle: Any) -> bool:
    """Whether the driver reports that a GPU needs no recovery."""
    if handle is None:
        return False
    try:
        (field,) = pynvml.nvmlDeviceGetFieldValues(
            handle, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION]
        )
    except pynvml.NVMLError:
        return False
    if field.nvmlReturn != pynvml.NVML_SUCCESS:
        return False
    return bool(field.value.uiVal == pynvml.NVML_GPU_RECOVERY_ACTION_NONE)
