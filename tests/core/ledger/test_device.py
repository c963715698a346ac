"""Devices derive what is left and their labels from their holders."""

from core.builders import a_device, a_holder
from kubeshare.core.units import MI


def test_an_idle_device_has_everything_left_and_no_labels() -> None:
    device = a_device("A")
    assert device.idle
    assert (device.compute_left, device.memory_left) == (1_000_000, 1000 * MI)
    assert device.affinities | device.anti_affinities | device.exclusions == frozenset()


def test_what_is_left_and_the_labels_follow_from_the_holders() -> None:
    device = a_device(
        "A",
        a_holder("p", "0.3", memory=100, affinity="red", exclusion="e"),
        a_holder("q", "0", memory=0, anti_affinity="red"),
    )
    assert not device.idle
    assert device.path == "n1/A"
    assert (device.compute_left, device.memory_left) == (700_000, 900 * MI)
    assert device.affinities == device.anti_affinities == {"red"}
    assert device.exclusions == {"e", ""}
