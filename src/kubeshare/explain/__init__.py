"""Where a SharePod or pod would go, and why not elsewhere."""
