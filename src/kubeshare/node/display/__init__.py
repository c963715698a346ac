"""What programs read from Tencent's gpu-manager over HTTP: usage, graph, version."""
