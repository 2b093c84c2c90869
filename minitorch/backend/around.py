"""Something that stands around a backend, and replaces its functions.

With this file the registry's users can put one backend in the place of another: an
executor that looks on, a GPU to change to, arithmetic in another type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minitorch.backend.base import Backend


class Around:
    """A backend whose functions are replaced, each when it is first used."""

    def __init__(
        self,
        backend: Backend,
        replace: Callable[[str, Callable[..., Any]], Callable[..., Any]],
    ) -> None:
        self._backend, self._replace = backend, replace

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._backend, name)
        if not callable(found):
            return found
        made = self._replace(name, found)
        setattr(self, name, made)  # found at once from now on
        return made
