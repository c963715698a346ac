"""The ledger: GPUs, their holders, totals, and history; refuses over-commitment."""
