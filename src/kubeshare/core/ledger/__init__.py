"""The ledger: GPUs, their holders, totals and snapshots; it rejects over-commitment."""
