"""Reads the configuration that an administrator may change at run time.

It is the key ``config.yaml`` of ConfigMap ``kubeshare`` in KubeShare's namespace; fields that
are absent have their defaults. Each program that uses it watches the ConfigMap and calls
:meth:`DynamicConfiguration.now` when it decides, so a change applies from the next decision
on. An invalid text changes nothing: the last valid configuration stays in force, and an event
of the ConfigMap reports the error.
"""

import re
from collections.abc import Callable
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
import structlog
import yaml
from msgspec import Meta, Struct, field

from kubeshare.api.types.constants import FAMILY_GPUSHARE, FAMILY_VCUDA, LABEL_ZONE, NAMESPACE
from kubeshare.core.demand import LabelScope
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.policies.gpuid_scope import GpuidScope
from kubeshare.core.units import GI, MI, MICROS
from kubeshare.dialects.priority_and_gang import HIGHEST_PRIORITY
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import DELETED, Change
from kubeshare.kube.client.client import Client
from kubeshare.kube.controller.events import WARNING, EventRecorder, reference
from kubeshare.kube.meta import ObjectMeta
from kubeshare.kube.resources import CONFIG_MAPS

NAME: Final = "kubeshare"
"""The name of the ConfigMap."""
KEY: Final = "config.yaml"
"""The key of the configuration in it."""

MAX_GPUS_PER_NODE: Final = 1024
"""An upper bound of the GPUs of one node."""

Count = Annotated[int, Meta(ge=0, le=MAX_GPUS_PER_NODE)]
Seconds = Annotated[float, Meta(ge=0, le=7 * 24 * 3600)]

log = structlog.get_logger(__name__)


class _Strict(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """An unknown key is an error: it may be misspelled."""


class PoolConfiguration(_Strict, frozen=True, kw_only=True):
    """What happens to idle vGPUs (paper 4.4). Counts are for each node.

    Attributes:
        policy: ``onDemand`` deletes each at once; ``reservation`` keeps them; ``hybrid`` keeps
            ``minimum`` of them, and each of the others for ``idle_seconds``. A node's label
            ``kubeshare.nthu/pool`` overrides it for that node.
        minimum: vGPUs that a node has at least, with or without holders; they are created ahead
            of demand and never reclaimed. Not with ``onDemand``.
        warm: idle vGPUs that a node keeps ready while it has free GPUs. Those above ``minimum``
            are reclaimed for pods that request whole GPUs. Not with ``onDemand``.
        idle_seconds: how long ``hybrid`` keeps a vGPU beyond ``minimum`` and ``warm``.
    """

    policy: Literal["onDemand", "reservation", "hybrid"] = "onDemand"
    minimum: Count = 0
    warm: Count = 0
    idle_seconds: Seconds = 300.0


class AutoscalerConfiguration(_Strict, frozen=True, kw_only=True):
    """How a cluster autoscaler sees demands for which no node has a GPU.

    Attributes:
        placeholders: the most pods that request a GPU on any node while SharePods are
            unschedulable for want of one; 0 without an autoscaler.
    """

    placeholders: Annotated[int, Meta(ge=0, le=64)] = 0


CpuCores: TypeAlias = Literal["all", "none"] | Annotated[int, Meta(ge=1, le=1024)]
"""How many of the CPU cores near each of its GPUs a container is bound to; ``none``: to no CPUs."""

_TERM: Final = r"[^=,\s]+=[^=,\s]*"
Selector = Annotated[str, Meta(max_length=1024, pattern=f"^{_TERM}(,{_TERM})*$")]


class OwnedConfiguration(_Strict, frozen=True, kw_only=True):
    """Which nodes' GPUs KubeShare owns, besides those labelled ``kubeshare.nthu/gpus: owned``.

    Attributes:
        selectors: label selectors, ``key=value`` terms separated by commas; a node that matches
            one of them is owned, unless its own label has another value.
        mixed: whether SharePods may use nodes that are dedicated to another manifest family.
    """

    selectors: Annotated[tuple[Selector, ...], Meta(max_length=16)] = ()
    mixed: bool = False


Door = Literal["manifests", "extender"]
"""Who places the pods of a family: ``manifests`` for KubeShare-Sched, behind a scheduling gate;
``extender`` for kube-scheduler with the extender."""


class GpushareConfiguration(_Strict, frozen=True, kw_only=True):
    """What the pods of Alibaba's gpushare mean, and the nodes dedicated to them.

    Attributes:
        memory_unit: the unit of ``aliyun.com/gpu-mem``, of pods and of nodes.
        door: who places the pods.
        prioritize: which nodes the extender prefers: ``binpack`` those with the fullest GPU that
            fits, ``spread`` those with the emptiest.
    """

    memory_unit: Literal["GiB", "MiB"] = "GiB"
    door: Door = "manifests"
    prioritize: Literal["binpack", "spread"] = "binpack"

    @property
    def unit_bytes(self) -> int:
        """The bytes of the unit."""
        return {"GiB": GI, "MiB": MI}[self.memory_unit]


class VcudaConfiguration(_Strict, frozen=True, kw_only=True):
    """How the pods of Tencent's Gaia are placed.

    Attributes:
        door: who places them.
    """

    door: Door = "manifests"


Priority = Annotated[int, Meta(ge=0, le=HIGHEST_PRIORITY)]
Namespace = Annotated[str, Meta(min_length=1, max_length=63)]


class MaxPriorityConfiguration(_Strict, frozen=True, kw_only=True):
    """The highest priority that demands may have; a higher one counts as this one.

    Attributes:
        default: of namespaces that are not listed.
        namespaces: name of a namespace -> of its demands.
    """

    default: Priority = HIGHEST_PRIORITY
    namespaces: Annotated[dict[Namespace, Priority], Meta(max_length=16384)] = {}

    def of(self, namespace: str) -> int:
        """The highest priority in a namespace."""
        return self.namespaces.get(namespace, self.default)


Milliseconds = Annotated[int, Meta(ge=5, le=10_000)]
"""Of a time quota: the bounds of the token daemon."""


class PodTimeQuotaConfiguration(_Strict, frozen=True, kw_only=True):
    """Between which time quotas a pod may choose by its annotation.

    Attributes:
        minimum: the shortest, in milliseconds.
        maximum: the longest.
    """

    minimum: Milliseconds
    maximum: Milliseconds

    def __post_init__(self) -> None:
        if self.minimum > self.maximum:
            raise ValueError(f"minimum {self.minimum} is more than maximum {self.maximum}")


class TimeQuotaConfiguration(_Strict, frozen=True, kw_only=True):
    """How long a pod holds a GPU at once while others wait for it.

    Attributes:
        milliseconds: of the nodes whose label does not say it.
        pods: between which quotas a pod may choose; None: it has that of its node.
    """

    milliseconds: Milliseconds = 100
    pods: PodTimeQuotaConfiguration | None = None


Model = Annotated[str, Meta(min_length=1, max_length=128)]
Price = Annotated[float, Meta(ge=0, le=1_000_000)]


class UsageConfiguration(_Strict, frozen=True, kw_only=True):
    """The accounts of what pods use.

    Attributes:
        retention_days: days after which an account is removed.
        objects: accounts that are kept at most; the oldest are removed.
        currency: of the prices, for people.
        prices: model of a GPU, as NVML names it -> the price of an hour of the whole GPU.
    """

    retention_days: Annotated[int, Meta(ge=1, le=3650)] = 90
    objects: Annotated[int, Meta(ge=1, le=1_000_000)] = 50_000
    currency: Annotated[str, Meta(max_length=16)] = ""
    prices: Annotated[dict[Model, Price], Meta(max_length=256)] = {}

    def price_micros(self, model: str) -> int | None:
        """The price of an hour of a GPU, in millionths of the currency; None without one."""
        price = self.prices.get(model)
        return None if price is None else round(price * MICROS)


class Configuration(_Strict, frozen=True, kw_only=True):
    """The whole configuration, with its defaults.

    Attributes:
        pool: what happens to idle vGPUs.
        owned: which nodes' GPUs KubeShare owns.
        gpushare: what the pods of Alibaba's gpushare mean.
        vcuda: how the pods of Tencent's Gaia are placed.
        autoscaler: how demands without a GPU are shown to a cluster autoscaler.
        gang_timeout_seconds: how long a gang may hold shares without having started; then it
            releases them all.
        gang_members: how many members of one gang may wait for GPUs at once.
        gang_domain_label: the label of nodes that names their domain; gangs that ask to be on near
            nodes use as few domains as possible.
        max_priority: the highest priority that demands of a namespace may have.
        preemption: whether a pending demand may have preemptible pods of lower priority
            evicted.
        gpu_failure: whether pods on a failed GPU are kept, or evicted through the eviction API,
            which respects their budgets.
        set_aside_seconds: how long a node that could not run a SharePod's pod is excluded for
            it; doubles each time, up to an hour.
        label_scope: whether equal affinity, anti-affinity and exclusion labels are the same
            across the cluster, or only within a namespace.
        gpuid_scope: which vGPUs an author may name by GPUID: any, those that no other namespace
            holds, or none.
        cpu_cores: how many of the CPU cores near its GPUs a container with shares is bound to.
        time_quota: how long a pod holds a GPU at once while others wait for it.
        usage: how long accounts are kept, and prices.
    """

    pool: PoolConfiguration = field(default_factory=PoolConfiguration)
    owned: OwnedConfiguration = field(default_factory=OwnedConfiguration)
    gpushare: GpushareConfiguration = field(default_factory=GpushareConfiguration)
    vcuda: VcudaConfiguration = field(default_factory=VcudaConfiguration)
    autoscaler: AutoscalerConfiguration = field(default_factory=AutoscalerConfiguration)
    gang_timeout_seconds: Annotated[float, Meta(ge=1, le=24 * 3600)] = 300.0
    gang_members: Annotated[int, Meta(ge=1, le=10_000)] = 512
    gang_domain_label: Annotated[str, Meta(min_length=1, max_length=317)] = LABEL_ZONE
    max_priority: MaxPriorityConfiguration = field(default_factory=MaxPriorityConfiguration)
    preemption: bool = False
    gpu_failure: Literal["keep", "evict"] = "keep"
    set_aside_seconds: Annotated[float, Meta(ge=1, le=3600)] = 60.0
    label_scope: LabelScope = "cluster"
    gpuid_scope: GpuidScope = "cluster"
    cpu_cores: CpuCores = "all"
    time_quota: TimeQuotaConfiguration = field(default_factory=TimeQuotaConfiguration)
    usage: UsageConfiguration = field(default_factory=UsageConfiguration)

    def door_of(self, family: str) -> Door:
        """Who places the pods of a manifest family."""
        return {FAMILY_GPUSHARE: self.gpushare.door, FAMILY_VCUDA: self.vcuda.door}[family]


class ConfigMap(Struct, frozen=True, kw_only=True):
    """The ConfigMap."""

    metadata: ObjectMeta
    data: dict[str, str] = {}


class DynamicConfiguration:
    """The configuration in force.

    Args:
        reflector: watches the ConfigMap.
        recorder: emits events about an invalid configuration; None for no events.
    """

    def __init__(
        self, reflector: Reflector[ConfigMap], recorder: EventRecorder | None = None
    ) -> None:
        self._recorder = recorder
        self._now = Configuration()
        self._handlers: list[Callable[[], None]] = []
        reflector.subscribe(self._changed)

    def now(self) -> Configuration:
        """The last valid configuration; the defaults if there is none."""
        return self._now

    def subscribe(self, handler: Callable[[], None]) -> None:
        """Call ``handler`` after each change of the configuration; it must not raise."""
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
    """Parse a configuration in YAML.

    Raises:
        InvalidValueError: the text is not acceptable; the field is the path of the key.
    """
    try:
        document = yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except Exception as error:  # noqa: BLE001 - of a thirteenth month, say, PyYAML makes no YAMLError
        raise InvalidValueError(KEY, f"is not YAML: {error}") from None
    try:
        return msgspec.convert(document or {}, Configuration)
    except msgspec.ValidationError as error:
        raise _invalid_value(str(error)) from None


def parse_cpu_cores(text: str, field: str) -> CpuCores:
    """Parse the number of cores in an annotation.

    Raises:
        InvalidValueError: it is none; under the name `field`.
    """
    try:
        cores: CpuCores = msgspec.convert(text, CpuCores, strict=False)
    except msgspec.ValidationError:
        message = f'"{text}" is not all, none or a number from 1 to 1024'
        raise InvalidValueError(field, message) from None
    return cores


def watch_configuration(client: Client) -> Reflector[ConfigMap]:
    """A reflector of the ConfigMap alone."""
    return Reflector(
        client, CONFIG_MAPS.into(ConfigMap), namespace=NAMESPACE, fields=f"metadata.name={NAME}"
    )


class _Loader(yaml.SafeLoader):
    """Refuses duplicate keys."""

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


def _invalid_value(message: str) -> InvalidValueError:
    """The decoder's error, with the path of the key as its field."""
    found = _AT.match(message)
    assert found is not None
    what, where = found["what"], found["where"] or ""
    unknown = _UNKNOWN.match(what)
    if unknown:
        path = f"{where}.{unknown['key']}" if where else unknown["key"]
        return InvalidValueError(f"{KEY}: {path}", "there is no such key")
    return InvalidValueError(f"{KEY}: {where}" if where else KEY, what[:1].lower() + what[1:])
