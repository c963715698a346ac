"""Who asks for a GPU: the identity, the group and the service."""
