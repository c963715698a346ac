"""Writes the accounts of this node's grants to disk and API server."""
