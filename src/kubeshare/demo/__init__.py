"""Plays figure 6 of the KubeShare paper: three pods share one GPU.

``figure`` has the jobs, the stages and what each share should be; ``timeline``
turns samples of busy time into shares; ``cluster`` does things to Kubernetes
and waits; ``play`` goes through the stages; ``show`` draws table and plot.
"""
