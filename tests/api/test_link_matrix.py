"""What a node agent says of links, as the core's matrix."""

import pytest

from kubeshare.api.link_matrix import matrix, row_of
from kubeshare.api.types.v1 import GPUDevice, GPULink, GPUNodeSpec
from kubeshare.core.topology import Level, check_links, nvlink


def found(*indexes: int, links: tuple[GPULink, ...] = ()) -> GPUNodeSpec:
    """A node with a GPU of each index, by the names ``GPU-0``, ``GPU-1``… in that order."""
    devices = tuple(
        GPUDevice(uuid=f"GPU-{number}", index=index) for number, index in enumerate(indexes)
    )
    return GPUNodeSpec(devices=devices, links=links)


def test_pairs_of_which_nothing_is_known_are_as_far_apart_as_can_be() -> None:
    links = matrix(found(0, 1, 2, links=(GPULink(a=2, b=0, link="NV12"),)))
    assert links == (
        (Level.SELF, Level.SYS, nvlink(12)),
        (Level.SYS, Level.SELF, Level.SYS),
        (nvlink(12), Level.SYS, Level.SELF),
    )


@pytest.mark.parametrize(
    "link",
    [
        GPULink(a=0, b=1, link="WARP"),
        GPULink(a=0, b=7, link="NV2"),
        GPULink(a=-1, b=1, link="NV2"),
        GPULink(a=1, b=1, link="NV2"),
    ],
)
def test_a_link_that_means_nothing_here_leaves_a_matrix_that_is_one(link: GPULink) -> None:
    links = check_links(matrix(found(0, 1, links=(link,))), "links")
    assert links[0][1] == Level.SYS


def test_of_links_that_contradict_each_other_the_farthest_counts_in_any_order() -> None:
    links = (GPULink(a=0, b=1, link="PIX"), GPULink(a=1, b=0, link="NODE"))
    for order in (links, links[::-1]):
        there, back = matrix(found(0, 1, links=order))
        assert (there[1], back[0]) == (Level.NODE, Level.NODE)


def test_a_node_that_told_of_no_link_or_of_too_many_gpus_has_no_matrix() -> None:
    assert matrix(found(0, 1)) == ()
    assert matrix(found(0, 64, links=(GPULink(a=0, b=1, link="PIX"),))) == ()


def test_a_gpu_has_the_row_of_its_index_unless_another_one_has_that_too() -> None:
    assert row_of("GPU-0", found(3, 1)) == 3
    assert row_of("GPU-9", found(3, 1)) is None
    assert row_of("GPU-0", found(1, 1, 0)) is None
    assert row_of("GPU-2", found(1, 1, 0)) == 0
