"""Diagnosis of pending demands: infeasibility, and the smallest change that would help."""
