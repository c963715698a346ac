"""The pool settings of a node: its label, else the configuration."""

import pytest
from msgspec import structs

from fakes import objects
from kubeshare.api.configuration import PoolConfiguration
from kubeshare.core.pool import FOREVER, PoolSettings
from kubeshare.device_manager.pool.state import settings_of, unknown_policy

CONFIGURED = PoolConfiguration(policy="hybrid", minimum=2, warm=1, idle_seconds=60.0)
HYBRID = PoolSettings(keep=60.0, minimum=2, warm=1)
RESERVATION = PoolSettings(keep=FOREVER, minimum=2, warm=1)


@pytest.mark.parametrize(
    ("label", "settings"),
    [
        ("onDemand", PoolSettings()),
        ("reservation", RESERVATION),
        ("hybrid", HYBRID),
        ("ondemand", HYBRID),
        ("", HYBRID),
    ],
)
def test_the_label_of_a_node_comes_before_the_configuration(
    label: str, settings: PoolSettings
) -> None:
    node = objects.node(labels={"kubeshare.nthu/pool": label})
    assert settings_of(CONFIGURED, node) == settings
    assert unknown_policy(node) == ("ondemand" if label == "ondemand" else "")


@pytest.mark.parametrize("policy", ["onDemand", "reservation", "hybrid"])
def test_a_policy_of_a_label_is_that_of_the_configuration(policy: str) -> None:
    configured = structs.replace(CONFIGURED, policy=policy)
    node = objects.node()
    assert unknown_policy(node) == ""
    assert settings_of(configured, node) == settings_of(
        CONFIGURED, objects.node(labels={"kubeshare.nthu/pool": policy})
    )


def test_a_node_that_is_closed_keeps_nothing_whatever_its_label() -> None:
    node = objects.node(labels={"kubeshare.nthu/pool": "reservation"})
    closed = structs.replace(node, spec=structs.replace(node.spec, unschedulable=True))
    assert settings_of(CONFIGURED, closed) == PoolSettings()
