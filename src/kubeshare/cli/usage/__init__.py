"""`kubeshare usage`: reports who used how much of the GPUs."""
