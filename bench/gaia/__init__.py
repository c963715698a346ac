"""The experiments of the Gaia paper: where pods are placed, and how long that takes."""
