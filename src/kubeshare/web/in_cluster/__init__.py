"""The page in the cluster: each viewer sees with their own token."""
