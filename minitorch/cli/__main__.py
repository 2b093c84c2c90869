"""`python -m minitorch.cli` is `minitorch`."""

from minitorch.cli import main

main()
