"""The lab's control plane: etcd, API server, certificates and audit log."""
