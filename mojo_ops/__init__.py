"""The Mojo backend: kernels in Mojo, compiled on the user's machine.

`backend.py` holds the functions, README.md says how the parts fit together.
"""
