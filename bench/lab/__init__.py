"""How long pods take to run, in the lab: ``make bench-lab``.

Pods that share a GPU are compared with native pods that have a whole GPU, in turn on the same
nodes in the same run, so that a disturbance affects both alike.
"""
