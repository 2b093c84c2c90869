"""The course: assignments, the workspaces of students, and what checks them.

With this package one can list the assignments (`catalog`), take the parts of an
assignment out of the library (`regions`), make a workspace (`workspace`), let a
workspace's files take the place of the library's (`overlay`), and run the checks on
them (`runner`). An assignment is a folder `aN_slug` with a handout (README.md), its
tasks and points (assignment.toml), the calls of what a student writes (calls.py) and
what they have to give (checks.py).

Nothing here imports `minitorch` when it is imported: a student's files can only take
the place of modules that are not loaded yet.
"""
