"""The figures, tables and experiments of the Gaia paper."""
