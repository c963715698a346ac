"""The kinds of objects that ask for GPUs: SharePods and gated pods."""
