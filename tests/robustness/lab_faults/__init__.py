"""The fault matrix in the lab: real kubelets, and a proxy before the API server that makes trouble.

Scheduler and device manager run beside the lab as processes of their own, so that they can
be killed at any write and be back a second later; the node agents run on their nodes. All
of them reach the API server through the proxy only.

``python -m robustness.lab_faults`` boots a lab, plays all of it and prints *points tried /
converged / over-commits / leaks*; ``tests/e2e`` plays a sample of it.
"""
