"""Takes over the GPUs of owned nodes and gives them back."""
