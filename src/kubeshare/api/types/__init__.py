"""The objects that KubeShare reads and writes, and their names."""
