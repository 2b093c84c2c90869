"""Prints and raises what a terminal would take for commands."""

TEXT = "\x1b]0;owned\x07\x1b[2J\x1b[1;1H all tests passed \udcff\x00"


def scale(x):
    print(TEXT.encode(errors="replace"))
    raise ValueError(TEXT)


running = scale
