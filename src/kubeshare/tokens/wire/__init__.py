"""The page and messages shared with the device library."""
