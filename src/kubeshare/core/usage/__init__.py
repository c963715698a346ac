"""Sums the accounts of what pods used, and selects old ones."""
