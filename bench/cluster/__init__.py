"""The numbers of a whole cluster: ``make bench-cluster``.

A real API server and kube-scheduler, our two programs as processes with the rights of their
own accounts, and nodes that exist as objects only: what a kubelet and a node agent would
write, the bench writes. So thousands of SharePods are a matter of minutes on one machine.
"""
