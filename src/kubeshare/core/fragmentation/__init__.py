"""What is left of GPUs, and how much of it the demands of a workload can use."""
