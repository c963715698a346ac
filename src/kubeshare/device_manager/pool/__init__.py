"""A node's pool of idle vGPUs: kept, made ahead of demand, or given back."""
