"""Preemption: who is evicted for a higher priority, and for whom the room is reserved."""
