"""Remembers what the pods used that somebody looks at, over time.

An account is a sum since the pod's start, so the difference of two is exact, however long nobody
looked between them: the history then is coarser, and never wrong.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

from msgspec import Struct

from kubeshare.core.units import MICROS
from kubeshare.web.views.nodes import Span

MOST_PODS: Final = 512
"""Pods that are remembered, those that were looked at last."""
MOST_SPANS: Final = 36
"""Spans of each, the latest: six hours, as a node writes its accounts every ten minutes."""


class Account(Struct, frozen=True, gc=False):
    """The GPU time that a running pod was charged, from its start until ``observed``.

    Times are RFC 3339; ``used_ns`` is of all its GPUs.
    """

    pod: str
    grant: str
    started: str
    observed: str
    used_ns: int
    duration_ns: int


class UseHistory:
    """The spans between the accounts that were seen of each pod.

    Args:
        most_pods: that are remembered.
        most_spans: of each.
    """

    def __init__(self, most_pods: int = MOST_PODS, most_spans: int = MOST_SPANS) -> None:
        self._most_pods = most_pods
        self._most_spans = most_spans
        self._known: OrderedDict[Hashable, tuple[Account, tuple[Span, ...]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def spans(self, pod: Hashable, account: Account) -> tuple[Span, ...]:
        """The spans of a pod with this account as the last one; the first is from its start."""
        last, spans = self._known.pop(pod, (None, ()))
        if last is None or last.grant != account.grant:
            last = Account(account.pod, account.grant, account.started, account.started, 0, 0)
            spans = ()
        if account.duration_ns > last.duration_ns:
            spans = (*spans, _between(last, account))[-self._most_spans :]
            last = account
        self._known[pod] = last, spans
        if len(self._known) > self._most_pods:
            self._known.popitem(last=False)
        return spans


def _between(before: Account, after: Account) -> Span:
    used_ns, passed_ns = after.used_ns - before.used_ns, after.duration_ns - before.duration_ns
    micros = max(0, used_ns) * MICROS // passed_ns
    return Span(start=before.observed, end=after.observed, micros=micros)
