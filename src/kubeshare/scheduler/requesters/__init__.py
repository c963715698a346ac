"""Objects that ask for GPUs: SharePods and gated pods."""
