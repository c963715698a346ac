"""The life of a SharePod's pod: created, bound, reported, finalized."""
