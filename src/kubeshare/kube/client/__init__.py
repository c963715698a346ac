"""Requests to the API server: client, connections, decoding, errors."""
