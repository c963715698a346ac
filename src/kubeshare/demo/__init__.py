"""Figure 6 of the KubeShare paper, live: three pods share one GPU at what they asked for.

``figure`` has the jobs, the stages and what each share should be; ``timeline``
turns samples of busy time into shares; ``cluster`` does things to Kubernetes
and waits; ``play`` goes through the stages; ``show`` draws table and plot.
"""
