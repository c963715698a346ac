"""The `kubeshare` command line.

Each command is a module. `main.py` has their names and one line of help for each, and imports
a module only when its command is run, so `kubeshare --help` imports nothing but click.
"""
