"""Checks labels and room of one device or of a group.

A device has the labels of its present holders. A demand may use a device if

* exclusion: all holders have the demand's exclusion label; absent equals only absent;
* anti-affinity: no holder has the demand's anti-affinity label;
* affinity: some holder has the demand's affinity label. If no device of the cluster has the
  label, the demand may use idle devices and new ones, never an occupied one.

An idle device has no labels, so only the affinity rule concerns it. Source: the KubeShare paper
(HPDC '20, section 4.3), Algorithm 1, lines 2-10 and 17-19.

An index cannot check each device, so it keeps devices that pass the exclusion and affinity rules
alike in one *group*: :func:`groups` has the groups of a device, :func:`admitted` those that a
demand may use. Within a group only the anti-affinity rule and the room differ.
"""

from typing import Final, NamedTuple, TypeAlias

from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.holder import MAX_HOLDERS, Holder

Group: TypeAlias = tuple[str | None, str | None, bool]
"""Affinity label ("" for none, None for any), exclusion, whether it has anti-affinity labels."""

IDLE: Final[Group] = ("", None, False)
"""The group of all idle devices."""


class Admitted(NamedTuple):
    """The groups that a demand may use.

    Attributes:
        unlabelled: those without an affinity label, among them the idle devices.
        labelled: those with one.
        new: whether it may use a new vGPU.
    """

    unlabelled: tuple[Group, ...]
    labelled: tuple[Group, ...]
    new: bool


def groups(device: Device) -> tuple[Group, ...]:
    """The groups of a device; none if it takes no holder.

    A device with an affinity label is in the group of any label and in that of each label.
    """
    if not device.healthy or device.fenced:
        return ()
    if not device.holders:
        return (IDLE,)
    totals = device.totals
    # No demand equals several exclusion labels; only a foreign record has them.
    if len(totals.exclusions) != 1 or len(device.holders) >= MAX_HOLDERS:
        return ()
    (exclusion,) = totals.exclusions
    guarded = bool(totals.anti_affinities)
    if not totals.affinities:
        return (("", exclusion, guarded),)
    return tuple([(label, exclusion, guarded) for label in (None, *totals.affinities)])


def admitted(demand: Demand, *, label_in_use: bool) -> Admitted:
    """The groups that a demand may use.

    Args:
        demand: the demand.
        label_in_use: whether a device, in any state, has the demand's affinity label.
    """
    label, exclusion = demand.affinity, demand.exclusion
    if not label:
        return Admitted(
            (IDLE, ("", exclusion, False), ("", exclusion, True)),
            ((None, exclusion, False), (None, exclusion, True)),
            new=True,
        )
    if label_in_use:
        return Admitted((), ((label, exclusion, False), (label, exclusion, True)), new=False)
    return Admitted((IDLE,), (), new=True)


def labels_admit(device: Device, demand: Demand, *, label_in_use: bool) -> bool:
    """Whether the labels of a device admit a demand; ``label_in_use`` as in :func:`admitted`."""
    if device.idle:
        return not label_in_use
    label = demand.affinity
    return (not label or label in device.affinities) and is_compatible(device, demand)


def is_compatible(device: Device, demand: Demand) -> bool:
    """Whether no holder of a device conflicts with a demand (:func:`conflicts`)."""
    totals, label = device.totals, demand.anti_affinity
    return not (label and label in totals.anti_affinities) and all(
        exclusion == demand.exclusion for exclusion in totals.exclusions
    )


def conflicts(holder: Holder, demand: Demand) -> bool:
    """Whether a demand cannot share a device with a holder, because of their labels."""
    if demand.anti_affinity and holder.anti_affinity == demand.anti_affinity:
        return True
    return holder.exclusion != demand.exclusion


def takes_holders(device: Device) -> bool:
    """Whether the device takes new holders."""
    return device.healthy and not device.fenced and len(device.holders) < MAX_HOLDERS


def has_room(device: Device, demand: Demand) -> bool:
    """Whether the device has enough compute and memory left."""
    total = device.memory_bytes
    return (
        demand.compute_on(total) <= device.compute_left
        and demand.memory.on(total) <= device.memory_left
    )
