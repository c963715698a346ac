"""``kubeshare run``: a command on shares of this machine's GPUs."""
