"""Local copies of API objects, kept up to date by list and watch."""
