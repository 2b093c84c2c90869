"""Raises an error whose message has no end."""


class Endless(Exception):
    def __str__(self):
        text = "x"
        while True:
            text += text


def scale(x):
    raise Endless


running = scale
