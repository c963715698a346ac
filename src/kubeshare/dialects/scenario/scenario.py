"""Scenario files of ``kubeshare plan``: a cluster and its events.

The reader is strict: anything unknown is an error with its line. A request that no cluster could
satisfy is no error in the file, however; its outcome is ``rejected``.
"""

import io
from collections.abc import Iterator, Mapping
from typing import BinaryIO, Final, TypeAlias

import msgspec

from kubeshare.core.demand import Demand, LabelScope
from kubeshare.core.errors import InvalidValueError, UnknownPolicyError
from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy, policy
from kubeshare.core.quota.model import QuotaPolicy, fixed
from kubeshare.core.quota.rows import Quota
from kubeshare.core.quota.slots import within_slots
from kubeshare.core.units import parse_gpus
from kubeshare.dialects.priority_and_gang import Standing
from kubeshare.dialects.scenario.cluster import Cluster
from kubeshare.dialects.scenario.request import (
    Family,
    family_of,
    foreign,
    read_request,
    read_standing,
    uid_of,
)
from kubeshare.dialects.scenario.strict_yaml import Field, suggestion
from kubeshare.dialects.scenario.yaml_stream import Document

_TOP = ("policy", "labelScope", "nodes", "quota", "events")
_LABEL_SCOPES: Final[Mapping[str, LabelScope]] = {"cluster": "cluster", "namespace": "namespace"}
_QUOTA = ("namespace", "pool", "model", "gpus")


class Request(msgspec.Struct, frozen=True):
    """A request for a share, with a priority and possibly a gang."""

    demand: Demand
    standing: Standing = Standing()


class Refused(msgspec.Struct, frozen=True):
    """A request that no cluster can satisfy, such as for one and a half GPUs."""

    name: str
    error: InvalidValueError


class Release(msgspec.Struct, frozen=True):
    """The end of a request or a holder."""

    demand_uid: str


class Fail(msgspec.Struct, frozen=True):
    """The failure of a GPU; `where` is the field for an error if the GPU does not exist then."""

    node: str
    gpu: str
    where: Field


Event: TypeAlias = Request | Refused | Release | Fail


class Scenario(msgspec.Struct, frozen=True):
    """The initial cluster, the policy, and the events in order.

    Attributes:
        policy: decides.
        cluster: the nodes by their names in the file.
        written: field of a Demand → its name in the file, where the names differ.
        events: read from the file one by one, once; each may raise FileError.
    """

    policy: Policy
    cluster: Cluster
    written: Mapping[str, str]
    events: Iterator[Event]

    @property
    def ledger(self) -> Ledger:
        """The ledger on which the policy decides."""
        return self.cluster.ledger

    def failed(self, event: Fail) -> Device:
        """The GPU of a failure.

        Raises:
            FileError: there is no such GPU.
        """
        device = self.cluster.find(event.node, event.gpu)
        if device is None:
            event.where.fail(f"node {event.node} has no vGPU {event.gpu}")
        return device


def read_scenario(text: bytes | BinaryIO, source: str) -> Scenario:
    """Read a scenario file up to its events.

    Args:
        text: its content, or a stream, which must stay open until the last event.
        source: its name, for messages.

    Raises:
        FileError: the file is invalid; the message names line and field.
    """
    stream = io.BytesIO(text) if isinstance(text, bytes) else text
    required = ("policy", "nodes", "events")
    document = Document(stream, source, listed="events", known=_TOP, required=required)
    top = document.entries
    name = top["policy"].name()
    try:
        chosen = policy(name)
    except UnknownPolicyError as error:
        top["policy"].fail(str(error))
    quotas = _read_quotas(top["quota"]) if "quota" in top else []
    family = family_of(name)
    scope = _read_label_scope(top["labelScope"]) if "labelScope" in top else "cluster"
    cluster = Cluster(family, scope)
    for field in top["nodes"].items():
        cluster.read_node(field)
    reader = _Events(cluster, family)
    events = (reader.read(field) for field in document.items())
    return Scenario(
        QuotaPolicy(within_slots(chosen), fixed(quotas)), cluster, family.written, events
    )


def _read_label_scope(field: Field) -> LabelScope:
    name = field.name()
    if name not in _LABEL_SCOPES:
        field.fail(f"must be {' or '.join(_LABEL_SCOPES)}")
    return _LABEL_SCOPES[name]


def _read_quotas(field: Field) -> list[Quota]:
    rows: dict[tuple[str, str, str], Quota] = {}
    for item in field.items():
        entries = item.mapping(_QUOTA, required=("namespace",))
        namespace = entries["namespace"].name()
        pool = entries["pool"].text() if "pool" in entries else ""
        model = entries["model"].text() if "model" in entries else ""
        micros = 0
        if "gpus" in entries:
            try:
                micros = parse_gpus(entries["gpus"].number(), "gpus")
            except InvalidValueError as error:
                entries["gpus"].fail(error.message)
        if (namespace, pool, model) in rows:
            item.fail("says the same namespace, pool and model as a row before it")
        pools = frozenset([pool] if pool else [])
        row = Quota(namespace=namespace, pools=pools, model=model, micros=micros)
        rows[namespace, pool, model] = row
    return list(rows.values())


class _Events:
    """Reads ``events``, and tracks which names are in use."""

    def __init__(self, cluster: Cluster, family: Family) -> None:
        self._cluster = cluster
        self._family = family
        self._request = family.request
        self._foreign = foreign(family)
        self._names = set(cluster.holders)

    def read(self, field: Field) -> Event:
        entries = field.mapping(("request", "release", "fail"))
        if len(entries) != 1:
            field.fail("must be one of request, release and fail")
        if "request" in entries:
            return self._read_request(entries["request"])
        if "release" in entries:
            return self._read_release(entries["release"])
        return self._read_fail(entries["fail"])

    def _read_request(self, field: Field) -> Request | Refused:
        entries = field.mapping(self._request, required=("name",), foreign=self._foreign)
        name = entries["name"].name()
        if name in self._names:
            entries["name"].fail(f"{name} has asked or holds something already")
        self._names.add(name)
        for item in entries["nodes"].items() if "nodes" in entries else ():
            self._cluster.check_node(item)
        try:
            return Request(read_request(entries, self._family), read_standing(entries))
        except InvalidValueError as error:
            return Refused(name, error)

    def _read_release(self, field: Field) -> Release:
        name = field.name()
        if name not in self._names:
            known = suggestion(name, sorted(self._names))
            field.fail(f"no request or holder of that name: {name}{known}")
        self._names.discard(name)
        return Release(uid_of(name))

    def _read_fail(self, field: Field) -> Fail:
        entries = field.mapping(("node", "gpu"), required=("node", "gpu"))
        node = self._cluster.check_node(entries["node"])
        return Fail(node, entries["gpu"].id(), entries["gpu"])
