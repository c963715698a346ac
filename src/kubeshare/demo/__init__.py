"""Plays figure 6 of the KubeShare paper, or pods of Alibaba's gpushare.

``frame`` boots a lab with KubeShare, for each demo; ``gpushare`` is one of its own. Of figure 6,
``figure`` has the jobs, the stages and what each share should be; ``timeline``
turns samples of busy time into shares; ``cluster`` does things to Kubernetes
and waits; ``play`` goes through the stages; ``show`` draws table and plot.
"""
