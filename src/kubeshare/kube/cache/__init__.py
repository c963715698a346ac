"""Local copies of API objects, kept by list and watch."""
