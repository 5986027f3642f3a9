"""``python -m fedpu``: the same as the command ``fedpu``."""

from fedpu.cli import main

if __name__ == "__main__":
    main()
