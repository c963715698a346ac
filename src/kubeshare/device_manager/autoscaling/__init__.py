"""Shows unmet demand for GPUs to a cluster autoscaler."""
