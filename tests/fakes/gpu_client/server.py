"""The process of `fakes.gpu_client.Client`: one JSON line a step."""

import ctypes
import json
import os
import sys
from typing import Any

SUCCESS, NOT_READY = 0, 600


class Gpu:
    """What a test may ask for; each method answers with JSON."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._context = ctypes.c_void_p()
        self._spin = ctypes.c_void_p()
        self._streams: list[ctypes.c_void_p] = []
        self._events: list[ctypes.c_void_p] = []
        self._word = ctypes.c_void_p()
        module = ctypes.c_void_p()
        self._check("cuInit", 0)
        self._check("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), 0)
        self._check("cuCtxSetCurrent", self._context)
        self._check("cuModuleLoadData", ctypes.byref(module), b"any image")
        self._check("cuModuleGetFunction", ctypes.byref(self._spin), module, b"kubeshare_spin_us")
        self._check("cuMemHostAlloc", ctypes.byref(self._word), ctypes.c_size_t(64), 0)
        self._set_word(0)

    def _call(self, name: str, *arguments: Any) -> int:
        return int(getattr(self._cuda, name)(*arguments))

    def _check(self, name: str, *arguments: Any) -> None:
        result = self._call(name, *arguments)
        assert result == SUCCESS, f"{name}: {result}"

    def stream(self, flags: int = 0) -> int:
        """Makes a stream; its number counts from 1, as 0 is the default one."""
        self._streams.append(ctypes.c_void_p())
        self._check("cuStreamCreate", ctypes.byref(self._streams[-1]), flags)
        return len(self._streams)

    def _handle(self, stream: int) -> ctypes.c_void_p:
        return self._streams[stream - 1] if stream else ctypes.c_void_p()

    def launch(self, microseconds: int, count: int = 1, stream: int = 0) -> int:
        """Launches kernels; answers how many."""
        value = ctypes.c_uint32(microseconds)
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(value))
        shape = (1, 1, 1, 1, 1, 1, 0)
        for _ in range(count):
            self._check(
                "cuLaunchKernel", self._spin, *shape, self._handle(stream), parameters, None
            )
        return count

    def _set_word(self, value: int) -> None:
        ctypes.c_uint32.from_address(self._word.value or 0).value = value

    def hold(self, stream: int = 0) -> None:
        """Keeps what follows on a stream waiting until `release`."""
        at_least = 0
        self._check("cuStreamWaitValue32_v2", self._handle(stream), self._word, 1, at_least)

    def release(self) -> None:
        """Lets all streams go on."""
        self._set_word(1)

    def record(self, stream: int = 0) -> int:
        """Records a new event on a stream; answers its number."""
        self._events.append(ctypes.c_void_p())
        self._check("cuEventCreate", ctypes.byref(self._events[-1]), 0)
        self._check("cuEventRecord", self._events[-1], self._handle(stream))
        return len(self._events) - 1

    def record_context(self) -> int:
        """Records a new event on the whole context; answers its number."""
        self._events.append(ctypes.c_void_p())
        self._check("cuEventCreate", ctypes.byref(self._events[-1]), 0)
        self._check("cuCtxRecordEvent", self._context, self._events[-1])
        return len(self._events) - 1

    def done(self, event: int) -> bool:
        """Whether an event has happened."""
        result = self._call("cuEventQuery", self._events[event])
        assert result in (SUCCESS, NOT_READY), result
        return result == SUCCESS

    def wait_event(self, stream: int, event: int) -> None:
        """Makes a stream wait for an event."""
        self._check("cuStreamWaitEvent", self._handle(stream), self._events[event], 0)

    def elapsed(self, start: int, end: int) -> float:
        """Milliseconds between two events, which are waited for."""
        value = ctypes.c_float()
        self._check("cuEventSynchronize", self._events[end])
        self._check(
            "cuEventElapsedTime", ctypes.byref(value), self._events[start], self._events[end]
        )
        return value.value

    def synchronize(self) -> None:
        """Waits for all work of the context."""
        self._check("cuCtxSynchronize")

    def allocate(self, size: int) -> list[int]:
        """Allocates; answers the result and the address."""
        pointer = ctypes.c_uint64()
        result = self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return [result, pointer.value]

    def free(self, pointer: int) -> int:
        """Frees; answers the result."""
        return self._call("cuMemFree_v2", ctypes.c_uint64(pointer))

    def memory(self) -> list[int]:
        """Free and total memory of the GPU."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._check("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return [free.value, total.value]

    def write_and_read(self, pointer: int, text: str) -> str:
        """Copies a text to the GPU and back."""
        data = text.encode()
        back = ctypes.create_string_buffer(len(data))
        size = ctypes.c_size_t(len(data))
        self._check("cuMemcpyHtoD_v2", ctypes.c_uint64(pointer), data, size)
        self._check("cuMemcpyDtoH_v2", back, ctypes.c_uint64(pointer), size)
        return back.raw.decode()

    def devices(self) -> int:
        """How many GPUs this process sees."""
        count = ctypes.c_int()
        self._check("cuDeviceGetCount", ctypes.byref(count))
        return count.value

    def result_in_fork(self) -> int:
        """What cuCtxSynchronize gives in a child of this process."""
        child = os.fork()
        if child == 0:
            os._exit(self._call("cuCtxSynchronize"))
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> None:
    """Answers each line of standard input with one on standard output."""
    gpu = Gpu()
    for line in sys.stdin:
        method, arguments = json.loads(line)
        sys.stdout.write(json.dumps(getattr(gpu, method)(*arguments)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
