"""cli: the command ``fedpu``."""


def main() -> None:
    """Run the command line."""
    from fedpu.cli.app import main as run

    run()


__all__ = ["main"]
