"""The list of the driver API's names, and the C that is generated from it."""
