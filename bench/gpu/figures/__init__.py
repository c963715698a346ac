"""The figures of the KubeShare paper that are about one GPU."""
