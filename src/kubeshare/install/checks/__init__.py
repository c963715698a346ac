"""Gathers facts of a cluster or a node, and judges them.

``cluster_reader`` and ``node_reader`` gather; ``platform`` (before an installation),
``installation`` and ``node`` judge, and are pure.
"""
