"""PyTorch does what it is told: a line in, a JSON line out (`conversation.py`)."""

import torch

from native.device_library.clients.conversation import RefusedError, converse

torch.cuda.init()


def total() -> int:
    return int(torch.cuda.mem_get_info()[1])


def alloc(size: int) -> torch.Tensor:
    try:
        return torch.empty(size, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError:
        raise RefusedError("CUDA_ERROR_OUT_OF_MEMORY") from None


def launch(count: int) -> None:
    """So many kernels, on two streams in turn."""
    numbers = torch.empty(1000, device="cuda")
    streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
    for each in range(count):
        with torch.cuda.stream(streams[each % 2]):
            numbers.add_(1)
    torch.cuda.synchronize()


def fill(size: int) -> None:
    alloc(size).zero_()
    torch.cuda.synchronize()


total()  # makes the context
converse(total, alloc, launch, fill, drop=torch.cuda.empty_cache)
