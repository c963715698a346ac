"""The scheduler extender: Alibaba's gpushare for clusters whose kube-scheduler calls one.

A program of its own beside kube-scheduler, with the wire format of gpushare's extender. It decides
with the same core and records its decisions in the same holders as KubeShare-Sched, so both may
run at once, and several replicas too.

* :mod:`.wire` reads and writes the JSON of kube-scheduler's extender protocol; no I/O;
* :mod:`.http` serves it, with bounds on what a client can send and on how long it may take.
"""
