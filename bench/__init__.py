"""The project's numbers. ``make bench`` prints one JSON line for each.

Every number is measured several times and printed as a median with its spread. Both sides of a
comparison are measured in turn in the same run, so that a noisy machine disturbs both alike.
:mod:`bench.report` describes the lines, :mod:`bench.compare` compares two outputs.
"""
