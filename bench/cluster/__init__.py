"""The numbers of a whole cluster: ``make bench-cluster``.

A real API server and kube-scheduler, KubeShare's two programs as processes with the rights of
their own accounts, and nodes that exist as objects only: the bench writes what a kubelet and a
node agent would write. So thousands of SharePods take minutes on one machine.
"""
