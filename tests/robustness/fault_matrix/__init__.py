"""Runs lives of SharePods with one trouble at one write, and checks that all converges.

A *life* is a sequence of steps with SharePods, from the first to the last. It runs once
without trouble, which counts its writes; then once more for every write and every *trouble*:
the program that writes is killed, the API server is killed, the answer is lost, the write
is delayed, … Each such run is a *point*.

``python -m robustness.fault_matrix [LIFE [TROUBLE [WRITE]]] [--seed N] [--seeds N]`` plays some
points, or all. The seed decides all that is random in a run, so a failure can be
repeated; ``--seeds`` plays every point with several.
"""
