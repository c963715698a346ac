"""A real Kubernetes on one machine, for tests and the demo.

Nothing in it is a mock except the GPU: etcd, API server, controller manager,
scheduler, kubelet, kube-proxy, containerd and runc are the real programs, so
what works here works on a cluster. Two things can be had:

* :mod:`kubeshare.lab.control_plane.api_server`: etcd and the API server alone, on the
  loopback, without root: enough for the schemas, policies and controllers;
* :mod:`kubeshare.lab.cluster`: everything, with nodes that are namespaces of
  this machine and that have fake GPUs each.
"""
