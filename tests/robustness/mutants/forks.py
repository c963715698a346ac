"""Forks of this process: what happens in one is over when it ends."""

import os
import pickle
import resource
import signal
import sys
import tempfile
from collections.abc import Callable
from typing import Final, Literal, TypeAlias, TypeVar

Verdict: TypeAlias = Literal["killed", "killed by time", "survived", "not run"]

Answer = TypeVar("Answer")

_SURVIVED, _KILLED = 0, 1
_BYTES_MORE: Final = 2**31
_NOTE: Final = 512
_SECONDS_BLOCKED: Final = 30
_TIMES_SLOWER: Final = 20


def judged(run: Callable[[Callable[[str], None]], bool]) -> tuple[Verdict, str]:
    """What becomes of a fork, quiet and of bounded memory.

    Args:
        run: whether all went well; it is given a function by which it says what it is at.

    Returns:
        the verdict; and unless it has survived, what it was at.
    """
    with tempfile.TemporaryFile() as notes:

        def report(name: str) -> None:
            os.pwrite(notes.fileno(), name.encode().ljust(_NOTE)[:_NOTE], 0)

        child = os.fork()
        if not child:
            _in_child(lambda: run(report))
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) == _SURVIVED:
            return "survived", ""
        name = os.pread(notes.fileno(), _NOTE, 0).decode().strip()
    late = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGALRM)
    return "killed by time" if late else "killed", name


def limit_time(seconds: float, blocked: float = _SECONDS_BLOCKED) -> None:
    """Let this process die when it takes longer from now on.

    Args:
        seconds: of the processor that it may use.
        blocked: seconds that it may wait, beside what a busy machine needs for `seconds`.
    """
    for name in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(name, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    # Who waits for what never comes uses no processor.
    signal.setitimer(signal.ITIMER_REAL, blocked + _TIMES_SLOWER * seconds)


def answer_of(ask: Callable[[], Answer]) -> Answer:
    """What a function answers in a fork, without what it leaves behind.

    Raises:
        SystemExit: it gives no answer; it has said why.
    """
    with tempfile.TemporaryFile() as paper:
        child = os.fork()
        if not child:
            code = 1
            try:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                pickle.dump(ask(), paper)
                paper.flush()
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        if status:
            sys.exit(1)
        paper.seek(0)
        answer: Answer = pickle.load(paper)
        return answer


def _in_child(run: Callable[[], bool]) -> None:
    code = _KILLED
    try:
        silence = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silence, stream)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 + _BYTES_MORE
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        code = _SURVIVED if run() else _KILLED
    finally:
        os._exit(code)
