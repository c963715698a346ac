"""Runs the production code without a cluster, in virtual time.

``engine`` is the core tier: events over the ledger, the policies, the queue and the fair share
of the core. ``control`` runs the real controllers on a fake API server.
"""
