"""`python -m minitorch` is `minitorch`."""

from minitorch.cli import main

main()
