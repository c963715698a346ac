"""The JSON that kube-scheduler and an extender exchange."""
