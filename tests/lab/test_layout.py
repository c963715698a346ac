"""A lab's names and addresses follow from its name alone."""

import ipaddress

import pytest

from kubeshare.lab.errors import LabError
from kubeshare.lab.layout import MAX_NODES, Layout

_LONGEST_INTERFACE_NAME = 15


@pytest.mark.parametrize("name", ["demo", "t1", "a", "a-b", "twelve-chars"])
def test_a_fitting_name_is_accepted(name: str) -> None:
    assert len(Layout(name).host_link) <= _LONGEST_INTERFACE_NAME


@pytest.mark.parametrize(
    "name", ["", "Demo", "1st", "-a", "a-", "a/b", "../x", "thirteenchars", "a b"]
)
def test_a_name_that_does_not_fit_an_interface_or_a_path_is_refused(name: str) -> None:
    with pytest.raises(LabError, match="is no name for a lab") as refused:
        Layout(name)

    assert refused.value.exit_code == 2


def test_the_same_name_always_has_the_same_addresses() -> None:
    assert Layout("demo").api_address == Layout("demo").api_address


def test_every_machine_has_an_address_of_its_own_in_the_labs_network() -> None:
    layout = Layout("demo")
    nodes = [layout.node(number + 1) for number in range(MAX_NODES)]
    addresses = [layout.host_address, layout.api_address, *(node.address for node in nodes)]

    assert len(set(addresses)) == len(addresses)
    network = ipaddress.ip_network(layout.network)
    assert all(ipaddress.ip_address(one) in network for one in addresses)


def test_the_pods_of_two_nodes_have_separate_ranges() -> None:
    layout = Layout("demo")
    first, second = (ipaddress.ip_network(layout.node(one).pod_cidr) for one in (1, 2))

    assert not first.overlaps(second)


def test_everything_of_a_lab_is_under_its_own_name() -> None:
    layout = Layout("demo")
    node = layout.node(2)

    assert node.folder.parent == layout.folder
    assert node.gpu_state.parent == layout.shared_memory
    assert node.cgroup.startswith(f"{layout.cgroup}/")
