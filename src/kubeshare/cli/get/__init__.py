"""`kubeshare get`: lists SharePods, vGPUs and nodes."""
