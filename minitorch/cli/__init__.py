"""The command line: `minitorch train mnist`, `minitorch doctor`, ...

`main` is what the console script calls. Nothing heavy is imported before it runs.
"""

from __future__ import annotations

import time

# When the program started, for the time to the first training step.
STARTED = time.perf_counter()


def main() -> None:
    """Run the command that the arguments of the program name."""
    from minitorch.cli.app import app

    app()


if __name__ == "__main__":
    main()
