"""The scheduler extender: gpushare and Gaia for clusters whose kube-scheduler calls one.

A program of its own beside kube-scheduler, with the calls of gpushare's extender, which binds pods,
and of gpu-admission, which decides when kube-scheduler filters (:mod:`.predicates`). It decides
with the same core and records its decisions in the same holders as KubeShare-Sched, so both may
run at once, and several replicas too.

* :mod:`.wire` reads and writes the JSON of kube-scheduler's extender protocol; no I/O;
* :mod:`.http` serves it, with bounds on what a client can send and on how long it may take.
"""
