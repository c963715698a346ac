"""The core tier: jobs on a ledger, policies and fair share."""
