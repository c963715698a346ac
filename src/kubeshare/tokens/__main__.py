"""`python -m kubeshare.tokens` runs the token daemon, compiled where it can be."""

from kubeshare import compiled


def main() -> None:
    """Choose the code before anything imports it, then run the daemon."""
    code = compiled.use()
    from kubeshare.tokens import program  # noqa: PLC0415  imports what was chosen

    program.main(obj=code)


if __name__ == "__main__":
    main()
