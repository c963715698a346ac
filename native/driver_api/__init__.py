"""The names of the driver API, in one list, and what is made of it: `names.list` says more."""
