"""What an administrator may change while KubeShare runs.

It stands in ConfigMap ``kubeshare`` of KubeShare's namespace, key ``config.yaml``; what is
not said there is as it is by default. Each program that uses some of it watches the ConfigMap
and asks :meth:`DynamicConfiguration.now` at the moment it decides, so a change counts from the next
decision on. A text that cannot be read changes nothing: the last good one stays in force, and
an event of the ConfigMap says what is wrong with it.
"""

import re
from collections.abc import Callable
from typing import Annotated, Final, Literal

import msgspec
import structlog
import yaml
from msgspec import Meta, Struct, field

from kubeshare.api.types.constants import NAMESPACE
from kubeshare.core.errors import InvalidValueError
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import DELETED, Change
from kubeshare.kube.client.client import Client
from kubeshare.kube.controller.events import WARNING, EventRecorder, reference
from kubeshare.kube.meta import ObjectMeta
from kubeshare.kube.resources import CONFIG_MAPS

NAME: Final = "kubeshare"
"""The name of the ConfigMap."""
KEY: Final = "config.yaml"
"""Its entry that is read."""

MAX_GPUS_PER_NODE: Final = 1024
"""A bound for counts of GPUs of one node, which no node exceeds."""

Count = Annotated[int, Meta(ge=0, le=MAX_GPUS_PER_NODE)]
Seconds = Annotated[float, Meta(ge=0, le=7 * 24 * 3600)]

log = structlog.get_logger(__name__)


class _Strict(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A key that is not known is an error: it is a misspelled one."""


class PoolConfiguration(_Strict, frozen=True, kw_only=True):
    """What becomes of vGPUs that nobody holds a part of (paper 4.4). Counts are for each node.

    Attributes:
        policy: ``onDemand`` gives each back at once; ``reservation`` keeps them; ``hybrid``
            keeps ``minimum`` of them, and each of the others for ``idle_seconds``. A node's
            label ``kubeshare.nthu/pool`` says so for that node.
        minimum: vGPUs that a node has at least, whether or not they are held: made ahead of
            demand, and given to nobody else. Not with ``onDemand``.
        warm: vGPUs without holders that a node has ready for the next who asks, as long as it
            has GPUs that are free. Those above ``minimum`` give way to pods that ask for a
            whole GPU. Not with ``onDemand``.
        idle_seconds: how long ``hybrid`` keeps one that is neither of the minimum nor warm.
    """

    policy: Literal["onDemand", "reservation", "hybrid"] = "onDemand"
    minimum: Count = 0
    warm: Count = 0
    idle_seconds: Seconds = 300.0


class AutoscalerConfiguration(_Strict, frozen=True, kw_only=True):
    """How a cluster autoscaler learns of demands that no node has a GPU for.

    Attributes:
        placeholders: pods at most that ask for a GPU anywhere while SharePods wait for one;
            0 where nothing adds nodes.
    """

    placeholders: Annotated[int, Meta(ge=0, le=64)] = 0


class Configuration(_Strict, frozen=True, kw_only=True):
    """All of it, with its defaults.

    Attributes:
        pool: what becomes of idle vGPUs.
        autoscaler: how demands are shown that no node has a GPU for.
        gang_timeout_seconds: how long a gang may hold parts of GPUs without having started;
            then it gives them all back.
        preemption: whether a demand that waits may have others evicted that are marked as
            preemptible and are of lower priority.
        gpu_failure: whether pods on a GPU that has failed are kept, or evicted through the
            API, which respects their budgets.
        set_aside_seconds: how long a node that could not take a SharePod's pod is not chosen
            for it again; doubles each time, up to an hour.
    """

    pool: PoolConfiguration = field(default_factory=PoolConfiguration)
    autoscaler: AutoscalerConfiguration = field(default_factory=AutoscalerConfiguration)
    gang_timeout_seconds: Annotated[float, Meta(ge=1, le=24 * 3600)] = 300.0
    preemption: bool = False
    gpu_failure: Literal["keep", "evict"] = "keep"
    set_aside_seconds: Annotated[float, Meta(ge=1, le=3600)] = 60.0


class ConfigMap(Struct, frozen=True, kw_only=True):
    """The ConfigMap, as far as it is read."""

    metadata: ObjectMeta
    data: dict[str, str] = {}


class DynamicConfiguration:
    """The configuration in force.

    Args:
        reflector: watches the ConfigMap.
        recorder: tells people of one that cannot be read; None where there is nobody to tell.
    """

    def __init__(
        self, reflector: Reflector[ConfigMap], recorder: EventRecorder | None = None
    ) -> None:
        self._recorder = recorder
        self._now = Configuration()
        self._handlers: list[Callable[[], None]] = []
        reflector.subscribe(self._changed)

    def now(self) -> Configuration:
        """The last one that could be read; the defaults where there is none."""
        return self._now

    def subscribe(self, handler: Callable[[], None]) -> None:
        """Call ``handler`` each time when it has become another one; it must not raise."""
        self._handlers.append(handler)

    def _changed(self, change: Change[ConfigMap]) -> None:
        written = change.object
        text = "" if change.type == DELETED else written.data.get(KEY, "")
        try:
            read = parse(text)
        except InvalidValueError as error:
            log.error("the configuration is not valid, the last valid one stays", error=str(error))  # noqa: TRY400 - the words say it all
            if self._recorder is not None:
                note = f"{error}; the last valid configuration stays in force"
                about = reference(CONFIG_MAPS, written)
                self._recorder.emit(about, "InvalidConfiguration", "Reading", note, type=WARNING)
            return
        if read == self._now:
            return
        self._now = read
        log.info("the configuration has changed", configuration=msgspec.to_builtins(read))
        for handler in self._handlers:
            handler()


def parse(text: str) -> Configuration:
    """The configuration that a text in YAML says.

    Raises:
        InvalidValueError: it says what cannot be; the field is the key's path.
    """
    try:
        said = yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except Exception as error:  # noqa: BLE001 - of a thirteenth month, say, PyYAML makes no YAMLError
        raise InvalidValueError(KEY, f"is not YAML: {error}") from None
    try:
        return msgspec.convert(said or {}, Configuration)
    except msgspec.ValidationError as error:
        raise _in_our_words(str(error)) from None


def watch_configuration(client: Client) -> Reflector[ConfigMap]:
    """A reflector of that one ConfigMap."""
    return Reflector(
        client, CONFIG_MAPS.into(ConfigMap), namespace=NAMESPACE, fields=f"metadata.name={NAME}"
    )


class _Loader(yaml.SafeLoader):
    """Refuses what a mapping says twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:  # noqa: FBT001, FBT002 - PyYAML's
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key, (written, _) in zip(keys, node.value, strict=True):
            if keys.count(key) > 1:
                raise yaml.MarkedYAMLError(
                    problem=f"{key} is given twice", problem_mark=written.start_mark
                )
        return super().construct_mapping(node, deep)


_AT = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<where>.*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"^Object contains unknown field `(?P<key>.*)`$", re.DOTALL)


def _in_our_words(message: str) -> InvalidValueError:
    """What the decoder says, with the key's path before it."""
    found = _AT.match(message)
    assert found is not None
    what, where = found["what"], found["where"] or ""
    unknown = _UNKNOWN.match(what)
    if unknown:
        path = f"{where}.{unknown['key']}" if where else unknown["key"]
        return InvalidValueError(f"{KEY}: {path}", "there is no such key")
    return InvalidValueError(f"{KEY}: {where}" if where else KEY, what[:1].lower() + what[1:])
