"""Gives up decisions that no longer hold, so that Sched decides again."""
