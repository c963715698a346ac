"""The control tier: jobs as SharePods, through the real programs.

Both programs run in virtual time against the fake API server. This package plays what they work
with: kube-scheduler, kubelets, node agents, the garbage collector, and the users of the jobs.
"""
