"""The state of the cluster as controllers see it: informers, stores, and the ledger."""
