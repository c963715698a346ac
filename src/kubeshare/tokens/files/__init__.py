"""The run folder: grants, counters and tallies as files."""
