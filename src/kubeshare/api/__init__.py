"""The objects of the group ``kubeshare.nthu`` as this program reads and writes them.

``v1`` has narrow, frozen structs: the fields that a controller looks at, not
all that an object holds, so a struct is never written back whole. ``names``
has the constants that several programs must agree on, ``holders`` the JSON
patches that take and give back a part of a GPU, and ``ledger`` rebuilds the
core's ledger from the cluster's objects.
"""
