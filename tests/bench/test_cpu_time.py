"""The CPU time of a process has that of all its threads."""

import subprocess
import sys

from bench.cpu_time import cpu_seconds

BUSY = """
import hashlib, threading, time
def work():
    while time.thread_time() < 0.2:
        hashlib.sha256(bytes(1_000_000))
    print("done", flush=True)
    threading.Event().wait()
threading.Thread(target=work, daemon=True).start()
input()
"""


def test_the_time_of_a_thread_beside_the_main_one_counts() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"done\n"
        assert cpu_seconds(process.pid) >= 0.2
        process.kill()
