"""Errors that the driver reports of GPUs by number (XID), since the node agent watches them.

Some of them are a program's fault and over with it; the others mean that the GPU cannot be
trusted. Newer drivers say when one needs no more recovery, and then it is healthy again;
without that it is so when the driver has been loaded anew, or the agent been started again.
"""

from typing import Any, Final

import pynvml

OF_PROGRAMS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""XIDs that a program causes, and that end with it (NVIDIA's device plugin leaves out the same)."""
MOST: Final = 256
"""Events that are read at one look; the others wait for the next."""


class Xids:
    """The errors of a node's GPUs. Each call needs an NVML that has been started.

    Attributes:
        found: UUID → the XID of the last error that is not over.
    """

    def __init__(self) -> None:
        self.found: dict[str, int] = {}
        self._events: Any = None
        self._watched: set[str] = set()

    def look(self, handles: dict[str, Any]) -> None:
        """Watch these GPUs too, and read what has been reported.

        Args:
            handles: UUID → NVML's handle of each GPU that there is.
        """
        try:
            if self._events is None:
                self._events = pynvml.nvmlEventSetCreate()
            for uuid in handles.keys() - self._watched:
                self._watched.add(uuid)
                self._watch(handles[uuid])
            self._read()
        except pynvml.NVMLError:
            return  # this driver has no events: what else it says of a GPU is all there is
        for uuid in [uuid for uuid in self.found if _is_over(handles.get(uuid))]:
            del self.found[uuid]

    def forget(self) -> None:
        """NVML has been ended, and with it the watch."""
        self._events = None
        self._watched.clear()
        self.found.clear()

    def _watch(self, handle: Any) -> None:
        pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, self._events)

    def _read(self) -> None:
        for _ in range(MOST):
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, 0)
            except pynvml.NVMLError_Timeout:
                return
            xid = int(event.eventData)
            if xid not in OF_PROGRAMS:
                uuid = pynvml.nvmlDeviceGetUUID(event.device)
                self.found[uuid if isinstance(uuid, str) else uuid.decode()] = xid


def _is_over(handle: Any) -> bool:
    """The driver says that a GPU needs no recovery (any more)."""
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
