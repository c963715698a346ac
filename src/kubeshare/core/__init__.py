"""The core: what a GPU is, who holds it, and where the next demand goes.

Everything here is pure. Nothing reads a file, a clock, a random number or the
network, so that every door (the cluster's scheduler, ``kubeshare plan``, a
simulator) gives the same answer to the same question. The way through:

``units`` → ``demand``, ``device`` → ``ledger`` → ``policies`` → ``decision``

Numbers are integers: *micros* (millionths of a GPU's compute) and bytes.
"""
