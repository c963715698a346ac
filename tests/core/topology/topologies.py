"""Trees and meshes that tests place on; the trees have the names of the conformance table."""

from kubeshare.core.topology import Level, Links, nvlink, read_notation

TREES: dict[str, Links] = {
    name: read_notation(text, name)
    for name, text in {
        "T1": "0",
        "T4P": "SOC(PXB(0,1),PIX(2,3))",
        "T6": "SOC(PHB(PIX(0,1),PIX(2,3)),PIX(4,5))",
        "T8": "SOC(PHB(PIX(0,1),PIX(2,3)),PHB(PIX(4,5),PIX(6,7)))",
        "T8P4": "SOC(PIX(0..3),PIX(4..7))",
        "T8Q": "SOC(PHB(PIX(0,1),PIX(2,3),PIX(4,5)),PIX(6,7))",
        "T3L": "SOC(PIX(0,1),2)",
        "TX": "SOC(PHB(0,1),PXB(2,3))",
        "TF": "SOC(PHB(PIX(0,1),PXB(2,3)),PXB(4,5))",
        "mixed": "SYS(NODE(PHB(PIX(0,3),5),NV12(1,4)),2)",
        "counts": "SYS(NV1(NV2(0,1),2),PIX(NV2(3,4),5))",
    }.items()
}


def mesh(size: int, nvlinks: list[tuple[int, int]], beyond: int = Level.SYS) -> Links:
    """GPUs with NVLinks between some pairs, and one level between all others."""
    linked = {frozenset(pair) for pair in nvlinks}

    def level(row: int, column: int) -> int:
        if row == column:
            return 0
        return Level.NVLINK if frozenset((row, column)) in linked else beyond

    return tuple(tuple(level(row, column) for column in range(size)) for row in range(size))


CUBE_MESH: Links = mesh(
    8,
    [(a, b) for half in (0, 4) for a in range(half, half + 4) for b in range(a + 1, half + 4)]
    + [(0, 4), (1, 5), (2, 6), (3, 7)],
)
"""The hybrid cube mesh of 8 GPUs: two cliques of four, joined corner by corner."""

_DOUBLED = [(0, 3), (1, 2), (4, 7), (5, 6), (0, 4), (1, 5), (2, 3), (6, 7)]

DGX_1: Links = tuple(
    tuple(
        nvlink(2) if (row, column) in _DOUBLED or (column, row) in _DOUBLED else level
        for column, level in enumerate(levels)
    )
    for row, levels in enumerate(CUBE_MESH)
)
"""The hybrid cube mesh of a DGX-1: eight of its pairs have two NVLinks, the others one."""
