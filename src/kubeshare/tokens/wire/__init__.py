"""The page and messages that the token daemon shares with the device library."""
