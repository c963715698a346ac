"""What a share of a GPU may use."""

import msgspec


class ShareSpec(msgspec.Struct, frozen=True):
    """Request and limit of a share in micros, and its longest grant in ns.

    Attributes:
        limit_alone_micros: the limit while it is the GPU's only share; the limit if smaller.
        latency_sensitive: whether it is served promptly while it uses less than its request.
    """

    request_micros: int
    limit_micros: int
    quota_ns: int
    limit_alone_micros: int = 0
    latency_sensitive: bool = False
