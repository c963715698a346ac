"""What people type: the `kubeshare` command.

One module a command. `main.py` knows their names and one line about each and
imports a module only when its command is the one that was asked for, so that
`kubeshare --help` costs a Python start and click, nothing else.
"""
