"""The policy ``gradient``: leaves most for the jobs of the workload."""
