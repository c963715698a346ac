"""Scenarios through the core: what is released can be given again."""

from kubeshare.simulator.figures.scenarios import Placed, play

NODE = {"name": "n1", "topology": "PIX(0,1)"}


def test_a_release_frees_a_gpu_and_what_finds_none_waits() -> None:
    events = [
        {"request": {"name": "a", "cores": 100}},
        {"release": "a"},
        {"request": {"name": "b", "cores": 200}},
        {"request": {"name": "c", "cores": 100}},
    ]
    placed = play({"policy": "topology", "nodes": [NODE], "events": events})
    assert placed["b"] == Placed("n1", ("0", "1"))
    assert placed["c"] == Placed(None, ())
