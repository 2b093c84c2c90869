"""Ranks in a grid, for several kinds of parallel work at once.

With this file one can deal ranks out (`init_device_mesh("cpu", (2, 2), ("dp", "tp"))`)
and get the group of those who differ in one dimension only:

    tp ->      0  1         of rank 2: mesh.get_group("dp") has ranks 0 and 2,
    dp         2  3                    mesh.get_group("tp") has ranks 2 and 3
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from minitorch.backend import available_devices
from minitorch.distributed.group import ProcessGroup
from minitorch.distributed.setup import get_rank, get_world_size, new_group


class DeviceMesh:
    """Some ranks in a grid. All ranks must make it.

    Args:
        device_type: where their tensors are, such as "cpu" or "cuda".
        mesh: the numbers of the ranks, as nested lists.
        mesh_dim_names: a name for each dimension.

    Raises:
        ValueError: a rank comes twice or is none, there are not as many names, or no
            such devices.
    """

    def __init__(
        self,
        device_type: str,
        mesh: Sequence[object] | np.ndarray,
        *,
        mesh_dim_names: Sequence[str] | None = None,
    ) -> None:
        self.device_type, self.mesh = device_type, np.array(mesh, dtype=np.int64)
        self.mesh_dim_names = tuple(mesh_dim_names or ())
        if device_type not in available_devices():
            raise ValueError(
                f"DeviceMesh: the device type is {device_type!r}; expected one of "
                f"{', '.join(available_devices())}"
            )
        ranks, names = self.mesh.reshape(-1).tolist(), self.mesh_dim_names
        if len(set(ranks)) < len(ranks) or not set(ranks) <= set(
            range(get_world_size())
        ):
            raise ValueError(
                f"DeviceMesh: the ranks are {ranks}; expected each of the "
                f"{get_world_size()} ranks once at most"
            )
        if names and len(set(names)) != self.mesh.ndim:
            raise ValueError(
                f"DeviceMesh: mesh_dim_names are {list(names)}; expected one for each "
                f"of the {self.mesh.ndim} dimension(s)"
            )
        self._groups: list[ProcessGroup | None] = [
            self._my_group(dim) for dim in range(self.mesh.ndim)
        ]

    def _my_group(self, dim: int) -> ProcessGroup | None:
        """Make all groups along a dimension; the one that this rank is in."""
        mine = None
        for line in np.moveaxis(self.mesh, dim, -1).reshape(-1, self.mesh.shape[dim]):
            made = new_group(line.tolist())
            mine = made if get_rank() in line else mine
        return mine

    @property
    def shape(self) -> tuple[int, ...]:
        """How many ranks there are in each dimension."""
        return self.mesh.shape

    @property
    def ndim(self) -> int:
        return self.mesh.ndim

    def size(self, mesh_dim: int | str | None = None) -> int:
        """How many ranks there are, in all or in a dimension."""
        return self.mesh.size if mesh_dim is None else self.shape[self._dim(mesh_dim)]

    def get_coordinate(self) -> list[int] | None:
        """Where this rank is, None if it is not in the mesh."""
        places = np.argwhere(self.mesh == get_rank()).tolist()
        return places[0] if places else None

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """This rank's place in a dimension, which may be left out if there is one."""
        return self.get_group(mesh_dim).rank()

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """The ranks that differ from this one in that dimension alone."""
        if mesh_dim is None and self.ndim > 1:
            raise RuntimeError(
                f"DeviceMesh: there are {self.ndim} dimensions; say which, by its "
                f"number or name"
            )
        found = self._groups[0 if mesh_dim is None else self._dim(mesh_dim)]
        if found is None:
            raise RuntimeError(f"DeviceMesh: rank {get_rank()} is not in {self!r}")
        return found

    def get_all_groups(self) -> list[ProcessGroup]:
        """The group of each dimension."""
        return [self.get_group(dim) for dim in range(self.ndim)]

    def _dim(self, mesh_dim: int | str) -> int:
        known: list[int | str] = [*range(self.ndim), *self.mesh_dim_names]
        if mesh_dim not in known:
            raise KeyError(f"DeviceMesh: no dimension {mesh_dim!r}; there are {known}")
        return known.index(mesh_dim) % self.ndim

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """This rank's line in a dimension, or plane in some, as a mesh of its own."""
        dims = [self._dim(n) for n in (names if isinstance(names, tuple) else (names,))]
        part = object.__new__(DeviceMesh)
        part.device_type, part._groups = self.device_type, [*map(self.get_group, dims)]
        here = zip(self.get_coordinate() or (), range(self.ndim))
        place = tuple(slice(None) if dim in dims else at for at, dim in here)
        part.mesh = self.mesh[place].transpose(np.argsort(np.argsort(dims)))
        part.mesh_dim_names = tuple(self.mesh_dim_names[dim] for dim in dims)
        return part

    def __repr__(self) -> str:
        names = f", mesh_dim_names={self.mesh_dim_names}" if self.mesh_dim_names else ""
        return f"DeviceMesh({self.device_type!r}, {self.mesh.tolist()}{names})"


def init_device_mesh(
    device_type: str,
    mesh_shape: Sequence[int],
    mesh_dim_names: Sequence[str] | None = None,
) -> DeviceMesh:
    """All ranks in a grid of this shape, row by row.

    Raises:
        ValueError: there are more or fewer ranks than places.
    """
    shape, n = tuple(mesh_shape), get_world_size()
    if math.prod(shape) != n or min(shape, default=1) < 1:
        raise ValueError(
            f"init_device_mesh: mesh_shape {shape} has {math.prod(shape)} places, and "
            f"there are {n} ranks; expected sizes of 1 or more each, {n} in all"
        )
    grid = np.arange(n).reshape(shape)
    return DeviceMesh(device_type, grid, mesh_dim_names=mesh_dim_names)
