"""The Kubernetes objects that KubeShare reads and writes, and the names they share."""
