"""The lab: pages in the browser that show what the library does while it does it.

    >>> from minitorch.lab import Lab
    >>> lab = Lab()                 # on 127.0.0.1, at a port that is free
    >>> lab.url
    'http://127.0.0.1:40123/6vQ...3k/'
    >>> lab.serve_forever()

server        pages, their questions and their streams, for one user on this machine
points        a network learns points in the plane
autograd      the graph of a typed expression, stepped backward
strides       which storage positions a view shows; which shapes broadcast
digits        what a convolutional network sees in a drawn digit
text          what a GPT looks at, and what it expects next
xray          what each lane of a kernel asks memory for, beside its source
runs          training runs side by side, while they train, too
expressions   typed text as tensors, without `eval`

The pages themselves are in `static`: HTML, CSS and modules of JavaScript, which need no
network and no tool to build.
"""

from __future__ import annotations

from minitorch.lab.server import Lab

__all__ = ["Lab"]
