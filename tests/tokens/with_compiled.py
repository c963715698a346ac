"""A plugin of pytest: tests run the compiled modules of a handover."""

from kubeshare import compiled

code = compiled.use()
assert code.is_compiled, code.why_not
