"""The cluster's state in a controller: informers, stores, and the ledger."""
