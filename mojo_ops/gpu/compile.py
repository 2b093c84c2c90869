"""From a `.mojo` file to PTX, on any machine that has the compiler.

With this file one can have the kernels of a file of this folder as PTX, the assembly
that a GPU's driver understands (`ptx("matmul")`), compiled at the first request and
found in the user's cache afterwards. No GPU is needed for it; and where the PTX is in
the cache, no compiler either: nothing of Mojo runs when a kernel does.

To the compiler a GPU is one more processor to compile for; each exported function
becomes a kernel (`.entry`) of the same name.
"""

from __future__ import annotations

import hashlib
from importlib import metadata
from pathlib import Path

from mojo_ops import build

FOLDER = Path(__file__).parent
PINNED = "1.2.0"  # setup.cfg's compiler: what the PTX in a cache without one is from
INSTALL = "pip install -e '.[mojo-gpu]'"
OPTIONS = (
    "--emit", "asm", "--target-triple", "nvptx64-nvidia-cuda",
    "-j", "1",  # with more threads it makes several pieces, and cannot write them
)  # fmt: skip
Arch = tuple[int, int]  # a compute capability, (9, 0) for sm_90


def source(module: str) -> Path:
    """The file of a module: of this folder, or shared with the kernels of the CPU."""
    file = FOLDER / f"{module}.mojo"
    return file if file.exists() else build.source(module)


def sources(module: str) -> dict[str, str]:
    """The text of a module, and of all of ours that it imports, by name."""
    return build.sources(module, source)


def version() -> str:
    """The version of the compiler that is here, or of the one that should be."""
    try:
        return metadata.version(build.PACKAGE)
    except metadata.PackageNotFoundError:
        return PINNED


def chip(arch: Arch) -> str:
    """The compiler's name for a GPU: "sm_90" for (9, 0)."""
    return f"sm_{arch[0]}{arch[1]}"


def place(module: str, arch: Arch = (9, 0)) -> Path:
    """Where a module's PTX is kept; the name tells all that decides what is in it."""
    texts = sources(module)
    parts = [version(), chip(arch), *OPTIONS, *build.flags()]
    parts += [f"{name}\n{texts[name]}" for name in sorted(texts)]
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]
    return build.cache_folder() / f"{module}-{chip(arch)}-{digest}.ptx"


def ptx(module: str, arch: Arch = (9, 0)) -> str:
    """The PTX of all kernels of a module; compiles it if nobody has done so before."""
    target = place(module, arch)
    made = build.kept(target)
    if made is None:
        check_compiler()
        options = [*OPTIONS, "--target-cpu", chip(arch)]
        file = FOLDER / f"{module}.mojo"
        made = build.compiled(target, file, sources(module), options)
    return made.read_text()


def check_compiler() -> None:
    """Raise a RuntimeError that says what is missing to compile for a GPU."""
    try:
        build.check_platform()
    except ImportError as error:
        raise RuntimeError(
            f"{error}; kernels in Mojo are compiled at their first use, and "
            f"{INSTALL} installs what that needs"
        ) from error
    if not (build.compiler().parent.parent / "lib" / "libmax.so").exists():
        raise RuntimeError(
            f"the Mojo compiler is here without max-core, the part for GPUs; "
            f"{INSTALL} installs it"
        )
