"""Shares that `kubeshare run` asks for, and GPUs with room."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from kubeshare.core.demand import Demand, Memory, Share
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import MICROS, format_memory, parse_memory, parse_share
from kubeshare.dialects.shares import of_several_gpus, parse_request
from kubeshare.tokens.capacity import shortfall
from kubeshare.tokens.client import ask_snapshot
from kubeshare.tokens.files.grants import GRANT_VERSION, Grant, GrantedShare
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.files.statuses import DaemonMissingError
from kubeshare.tokens.gpus import Gpu

_TRIES = 3
"""How often a set of GPUs is chosen anew, after others took one of them in between."""


class Held(NamedTuple):
    """What others hold of the GPUs: one grant for each share, and holders by claim."""

    grants: list[Grant]
    holders: dict[str, str]


class NoRoomError(Exception):
    """The GPUs have no room for all shares; the reasons name who holds what."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons


def read_share(
    request: str,
    limit: str | None,
    limit_alone: str | None,
    memory: str | None,
    *,
    latency_sensitive: bool = False,
) -> Share:
    """The share of one GPU that options ask for; without memory the share of the request.

    Raises:
        InvalidValueError: a value is not valid; names the option.
    """
    micros = _read_request(request)
    alone = None if limit_alone is None else parse_share(limit_alone, "--limit-alone")
    try:
        return Share(
            request_micros=micros,
            limit_micros=MICROS if limit is None else parse_share(limit, "--limit"),
            limit_alone_micros=alone,
            latency_sensitive=latency_sensitive,
            memory=Memory(micros=micros) if memory is None else parse_memory(memory, "--memory"),
        )
    except InvalidValueError as error:
        options = {"request": "--request", "limitAlone": "--limit-alone"}
        raise error.under(options.get(error.field, error.field)) from None


def _read_request(text: str) -> int:
    """The micros of a request; who asks for several GPUs is told of the option for that."""
    try:
        return parse_share(text, "--request")
    except InvalidValueError as error:
        try:
            parse_request(text, "--gpus")
        except InvalidValueError:
            raise error from None
        hint = f"{error.message}; for several GPUs give --gpus {text} instead"
        raise InvalidValueError("--request", hint) from None


def read_gpus(number: str) -> tuple[Share, ...]:
    """The shares of a number of GPUs, each on another one: whole ones, then the rest of one.

    Raises:
        InvalidValueError: not such a number, or zero.
    """
    micros = parse_request(number, "--gpus")
    if not micros:
        raise InvalidValueError("--gpus", f"{number} GPUs are none: ask for a part of one, or more")
    if micros < MICROS:
        return (Share(request_micros=micros, memory=Memory(micros=micros)),)
    return Demand(uid="", name="", **of_several_gpus(micros)).per_gpu()


def choose(found: tuple[Gpu, ...], wanted: str | None) -> tuple[Gpu, ...]:
    """List the GPUs that may be used, in order of preference.

    Raises:
        InvalidValueError: there is no such GPU; the message names those that exist.
    """
    if wanted is None:
        return found
    chosen = tuple(gpu for gpu in found if wanted in (str(gpu.index), gpu.uuid))
    if not chosen:
        raise InvalidValueError(
            "--gpu", f"{wanted} does not exist; this machine has {_names(found)}"
        )
    return chosen


def granted(share: Share, gpu: Gpu) -> GrantedShare:
    """A share of a given GPU.

    Raises:
        InvalidValueError: more memory than it has, or none.
    """
    memory = share.memory.on(gpu.memory_bytes)
    if not 0 < memory <= gpu.memory_bytes:
        raise InvalidValueError(
            "--memory",
            f"{format_memory(memory)} is not within 1 byte and the "
            f"{format_memory(gpu.memory_bytes)} of GPU {gpu.index} ({gpu.model})",
        )
    return GrantedShare(
        uuid=gpu.uuid,
        memory_total_bytes=gpu.memory_bytes,
        request_micros=share.request_micros,
        limit_micros=share.limit_micros,
        memory_bytes=memory,
        limit_alone_micros=share.limit_alone_micros or 0,
        latency_sensitive=share.latency_sensitive,
        share=share.name,
        model=gpu.model,
    )


def attempts(
    shares: tuple[Share, ...], gpus: tuple[Gpu, ...], held: Callable[[], Held]
) -> Iterator[tuple[GrantedShare, ...]]:
    """What to ask the daemon for, one after another until it grants one.

    A single share is tried on each GPU: no question delays its start. For several shares the
    GPUs are chosen by what others hold.

    Args:
        shares: each on another GPU.
        gpus: that may be used, in order of preference.
        held: asks what others hold at present.

    Raises:
        InvalidValueError: there are fewer GPUs than shares, or one has too little memory.
        NoRoomError: several shares do not fit beside what others hold.
    """
    if len(shares) > len(gpus):
        raise InvalidValueError(
            "--gpus", f"needs {len(shares)} GPUs; this machine has {len(gpus)}: {_names(gpus)}"
        )
    if len(shares) == 1:
        yield from ((granted(shares[0], gpu),) for gpu in gpus)
        return
    for _ in range(_TRIES):
        yield place(shares, gpus, held())


def place(shares: tuple[Share, ...], gpus: tuple[Gpu, ...], held: Held) -> tuple[GrantedShare, ...]:
    """Each share on a GPU with room for it, the fullest, so that whole GPUs stay free.

    Raises:
        NoRoomError: one of them fits nowhere.
    """
    placed: dict[str, GrantedShare] = {}
    for share in shares:
        left = [granted(share, gpu) for gpu in gpus if gpu.uuid not in placed]
        missing = [
            shortfall(_grant("new", asked), held.grants, lambda grant: held.holders[grant.claim])
            for asked in left
        ]
        fitting = [asked for asked, reason in zip(left, missing, strict=True) if reason is None]
        if not fitting:
            raise NoRoomError([reason for reason in missing if reason])
        fullest = max(fitting, key=lambda asked: _requested(held.grants, asked.uuid))
        placed[fullest.uuid] = fullest
    return tuple(placed.values())


def ask_held(paths: Paths) -> Held:
    """Ask the daemon what is held of the GPUs; nothing where none answers."""
    try:
        entries = ask_snapshot(paths)["claims"]
    except DaemonMissingError:
        entries = []
    held = Held([], {})
    for entry in entries:
        if entry["state"] != "refused":
            share = GrantedShare(
                uuid=entry["gpu"],
                memory_total_bytes=entry["memoryTotalBytes"],
                request_micros=entry["requestMicros"],
                limit_micros=entry["limitMicros"],
                memory_bytes=entry["memoryBytes"],
                share=entry.get("shareName", ""),
            )
            held.grants.append(_grant(entry["claim"], share))
            held.holders[entry["claim"]] = entry["holder"]
    return held


def _grant(claim: str, share: GrantedShare) -> Grant:
    return Grant(version=GRANT_VERSION, claim=claim, gpus=(share,))


def _requested(grants: list[Grant], uuid: str) -> int:
    return sum(gpu.request_micros for grant in grants for gpu in grant.gpus if gpu.uuid == uuid)


def _names(gpus: Sequence[Gpu]) -> str:
    return "; ".join(f"{gpu.index} ({gpu.model}, {gpu.uuid})" for gpu in gpus)
