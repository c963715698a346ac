"""The project's numbers. ``make bench`` prints one JSON line for each.

Both sides of a comparison are measured in the same run, one after the other and
again, so that a noisy machine disturbs both alike. A line has ``what``, ``goal``
(in words), ``value``, ``met``, and what the value was made from.
"""
