"""What only the control tier simulates."""

from collections.abc import Sequence

import msgspec


class ControlSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What only the control tier simulates.

    Attributes:
        request_s: how long each request to the API server takes.
        restarts: which program is killed when; it is started again a second later.
    """

    request_s: float = 0.0
    restarts: Sequence[tuple[str, float]] = ()
