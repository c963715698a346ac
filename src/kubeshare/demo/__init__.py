"""Plays figure 6 of the paper, or pods of gpushare or Gaia.

``frame`` boots a lab with KubeShare, for each demo; ``gpushare`` and ``gaia`` are two of them. Of
figure 6, ``figure`` has the jobs, the stages and what each share should be; ``timeline`` turns
samples of busy time into shares; ``cluster`` does things to Kubernetes and waits; ``play`` goes
through the stages; ``show`` draws table and plot.
"""
