"""What the clients have in common: commands from standard input, answers on standard output."""

import json
import sys
from collections.abc import Callable


class RefusedError(Exception):
    """The driver said no; the message has its name for the error."""


def converse(
    total: Callable[[], int],
    alloc: Callable[[int], object],
    launch: Callable[[int], None],
    fill: Callable[[int], None],
    drop: Callable[[], None] = lambda: None,
    **more: Callable[[int], object],
) -> None:
    """Obeys until standard input ends.

    Args:
        total: bytes of memory that the client thinks the GPU has.
        alloc: takes bytes, and keeps them.
        launch: a kernel of so many microseconds, and waits for it.
        fill: takes bytes, has the GPU write them, gives them back.
        drop: gives back what is not in use; what was kept is not any more.
        more: other commands by name; what they return is kept.
    """
    kept = []
    for line in sys.stdin:
        name, *numbers = line.split()
        answer: dict[str, object] = {"error": None}
        try:
            if name == "total":
                answer["total"] = total()
            elif name == "alloc":
                kept.append(alloc(int(numbers[0])))
            elif name == "launch":
                launch(int(numbers[0]))
            elif name == "drop":
                kept.clear()
                drop()
            elif name == "fill":
                fill(int(numbers[0]))
            else:
                kept.append(more[name](int(numbers[0])))
        except RefusedError as error:
            answer["error"] = str(error)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
