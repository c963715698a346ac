"""The jobs of simulations: drawn at random, or read from files."""
