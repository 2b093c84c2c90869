"""a12.1 in minitorch/backend/fusion.py: all steps stay."""


def needed(program):
    return program
