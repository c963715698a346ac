"""The CUDA runtime does what it is told: a line in, a JSON line out (`conversation.py`).

`libcudart` alone, as a C program uses it: nothing else makes contexts or loads code.
"""

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from native.device_library.clients.conversation import RefusedError, converse

LIBRARY = Path(sys.prefix) / "clients/nvidia/cu13/lib/libcudart.so.13"
MEMORY_ALLOCATION = 2

runtime = ctypes.CDLL(str(LIBRARY))
runtime.cudaGetErrorName.restype = ctypes.c_char_p


class RuntimeRefusedError(RefusedError):
    """The runtime's name for the error; an empty memory by the name that the driver has for it."""

    def __init__(self, code: int) -> None:
        runtime.cudaGetLastError()
        name = runtime.cudaGetErrorName(code).decode()
        super().__init__("CUDA_ERROR_OUT_OF_MEMORY" if code == MEMORY_ALLOCATION else name)


def call(function: Callable[..., int], *arguments: Any) -> None:
    if code := function(*arguments):
        raise RuntimeRefusedError(code)


def total() -> int:
    free, size = ctypes.c_size_t(), ctypes.c_size_t()
    call(runtime.cudaMemGetInfo, ctypes.byref(free), ctypes.byref(size))
    return size.value


def alloc(size: int) -> ctypes.c_void_p:
    pointer = ctypes.c_void_p()
    call(runtime.cudaMalloc, ctypes.byref(pointer), ctypes.c_size_t(size))
    return pointer


def fill(size: int) -> None:
    pointer = alloc(size)
    call(runtime.cudaMemset, pointer, 1, ctypes.c_size_t(size))
    call(runtime.cudaDeviceSynchronize)
    call(runtime.cudaFree, pointer)


class Dimensions(ctypes.Structure):
    """`dim3`: passed by value."""

    _fields_ = (("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint))


ONE = Dimensions(1, 1, 1)


def launch_function(function: Any, microseconds: int) -> None:
    duration = ctypes.c_uint(microseconds)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(duration))
    call(runtime.cudaLaunchKernel, function, ONE, ONE, arguments, ctypes.c_size_t(0), None)
    call(runtime.cudaDeviceSynchronize)


def launch(microseconds: int) -> None:
    """A kernel of a library that the program loads."""
    library, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    nothing = [None, None, 0]
    call(runtime.cudaLibraryLoadData, ctypes.byref(library), b"// any image", *nothing, *nothing)
    call(runtime.cudaLibraryGetKernel, ctypes.byref(kernel), library, b"kubeshare_spin_us")
    launch_function(kernel, microseconds)


class FatBinary(ctypes.Structure):
    """What nvcc puts before compiled kernels (`fatbinary_section.h`, `fatBinaryCtl.h`)."""

    _fields_ = (
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_ushort),
        ("header_bytes", ctypes.c_ushort),
        ("bytes", ctypes.c_ulonglong),
    )


class FatBinaryWrapper(ctypes.Structure):
    """What a program compiled by nvcc registers when it starts."""

    _fields_ = (
        ("magic", ctypes.c_int),
        ("version", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("names", ctypes.c_void_p),
    )


binary = FatBinary(0xBA55ED50, 1, ctypes.sizeof(FatBinary), 0)
wrapper = FatBinaryWrapper(0x466243B1, 1, ctypes.addressof(binary), None)
host_function = ctypes.create_string_buffer(1)  # its address stands for the kernel


def register(_: int) -> None:
    """Does what code that nvcc wrote does before main()."""
    runtime.__cudaRegisterFatBinary.restype = ctypes.c_void_p
    handle = ctypes.c_void_p(runtime.__cudaRegisterFatBinary(ctypes.byref(wrapper)))
    name = b"kubeshare_spin_us"
    runtime.__cudaRegisterFunction(handle, host_function, name, name, -1, *[None] * 5)
    runtime.__cudaRegisterFatBinaryEnd(handle)


def launch_registered(microseconds: int) -> None:
    launch_function(host_function, microseconds)


def use(device: int) -> None:
    call(runtime.cudaSetDevice, device)
    call(runtime.cudaFree, None)


def reset(_: int) -> None:
    call(runtime.cudaDeviceReset)


use(0)
converse(
    total,
    alloc,
    launch,
    fill,
    launch_registered=launch_registered,
    register=register,
    reset=reset,
    use=use,
)
