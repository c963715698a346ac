"""How long pods take to run, in the lab: ``make bench-lab``.

A pod that shares a GPU beside a native one that has a whole GPU, on the same nodes in the
same run, one after the other, so that whatever slows one down slows the other down too.
"""
