"""What this machine has, and what to do about what it lacks.

With this file one can look a machine over (`all_checks`); `minitorch doctor` shows the
result. A check never raises: what goes wrong in it is its result.
"""

from __future__ import annotations

import ctypes.util
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from minitorch.machine import processor_name, usable_cores, vector_units

OK, NOTE, MISSING, BROKEN = "ok", "note", "missing", "broken"


@dataclass(frozen=True)
class Check:
    """One line of the report.

    Attributes:
        section: the heading it belongs under.
        name: what was looked for.
        status: "ok", "note" (works, but could be better), "missing", "broken".
        found: what is there.
        advice: what to do, as exactly as can be said; "" if nothing.
    """

    section: str
    name: str
    status: str
    found: str
    advice: str = ""


def all_checks() -> Iterator[Check]:
    """Look at everything, one after the other."""
    for section, name, look in (
        ("machine", "Python", _python),
        ("machine", "system", _system),
        ("machine", "processor", _processor),
        ("machine", "cores", _cores),
        ("machine", "vector units", _vector_units),
        ("machine", "memory", _memory),
        ("libraries", "NumPy", lambda: _package("numpy")),
        ("libraries", "ml_dtypes", lambda: _package("ml_dtypes")),
        ("libraries", "Numba", lambda: _package("numba")),
        ("libraries", "safetensors", lambda: _package("safetensors")),
        ("libraries", "matplotlib", lambda: _package("matplotlib")),
        ("libraries", "fonts", _fonts),
        ("cpu", "kernels", _kernels),
        ("cpu", "threads", _threads),
        ("cpu", "kernel cache", _kernel_cache),
        ("gpu", "NVIDIA driver", _driver),
        ("gpu", "numba-cuda", _numba_cuda),
        ("gpu", "CUDA simulator", _simulator),
        ("mojo", "Mojo compiler", _mojo),
        ("mojo", "Mojo kernels", _mojo_kernels),
        ("mojo", "Mojo kernel cache", _mojo_cache),
        ("data", "MNIST", _mnist),
        ("data", "data cache", _data_cache),
        ("for the course", "PyTorch", lambda: _package("torch", COURSE)),
        ("for the course", "pytest", lambda: _package("pytest", COURSE)),
        ("for the course", "Hypothesis", lambda: _package("hypothesis", COURSE)),
    ):
        yield Check(section, name, *_guarded(look))


COURSE = "pip install 'minitorch[course]'"
CUDA = "pip install 'minitorch[cuda13]'"  # cuda12 for older drivers

# Status, what was found, advice.
Finding = tuple[str, str, str]


def _guarded(look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except ModuleNotFoundError as error:
        return MISSING, f"needs {error.name}", f"pip install {error.name}"
    except Exception as error:  # a report on a broken machine must not break
        return BROKEN, f"{type(error).__name__}: {error}", "see the message"


# ---------------------------------------------------------------------- the machine


def _python() -> Finding:
    found = f"{platform.python_version()} at {sys.executable}"
    if not (3, 10) <= sys.version_info[:2] <= (3, 14):
        return NOTE, found, "use Python 3.10 to 3.14, which minitorch is tested with"
    return OK, found, ""


def _system() -> Finding:
    return OK, f"{platform.system()} {platform.release()}, {platform.machine()}", ""


def _processor() -> Finding:
    return OK, processor_name() or "unknown", ""


def _cores() -> Finding:
    usable, all_cores = usable_cores(), os.cpu_count() or 1
    found = f"{usable} usable" + (f" of {all_cores}" if usable < all_cores else "")
    return OK, found, ""


def _vector_units() -> Finding:
    units = vector_units()
    if units is None:
        name = "NEON" if platform.machine() in ("arm64", "aarch64") else "unknown"
        return OK, name, ""
    if "AVX2" not in units:
        return NOTE, "no AVX2", "kernels work, at a fraction of the speed"
    return OK, ", ".join(units), ""


def _memory() -> Finding:
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return OK, "unknown", ""
    size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    if size < 2:
        return NOTE, f"{size:.1f} GiB", "train with a smaller --limit"
    return OK, f"{size:.1f} GiB", ""


# -------------------------------------------------------------------- the libraries


def _package(name: str, command: str = "") -> Finding:
    try:
        return OK, importlib.metadata.version(name), ""
    except importlib.metadata.PackageNotFoundError:
        return MISSING, "not installed", command or f"pip install {name}"


def _fonts() -> Finding:
    from matplotlib.font_manager import FontProperties, findfont

    return OK, Path(findfont(FontProperties(family=["sans-serif"]))).name, ""


# ------------------------------------------------------------------ the CPU backend


def _kernels() -> Finding:
    """Compile a matmul, run it, and compare with NumPy."""
    import numpy as np

    from minitorch.creation import from_numpy

    start = time.perf_counter()
    a = np.random.default_rng(0).random((129, 65), dtype=np.float32)
    out = (from_numpy(a) @ from_numpy(a.T.copy())).relu().sum(0).numpy()
    seconds = time.perf_counter() - start
    with np.errstate(all="ignore"):  # of which a product on macOS warns for nothing
        expected = np.maximum(a @ a.T, 0).sum(0)
    if not np.allclose(out, expected, rtol=1e-4):
        return BROKEN, "wrong results", "run: pytest tests/backends"
    return OK, f"matmul, relu and sum agree with NumPy ({seconds:.1f} s)", ""


# What to install for Numba's better threading layers.
_LAYERS = {"workqueue": "pip install tbb, or install OpenMP (apt install libgomp1)"}


def _threads() -> Finding:
    """The layer that runs parallel loops; it is known once one has run."""
    import numba

    _run_parallel_loop()
    layer, count = numba.threading_layer(), numba.get_num_threads()
    found = f"{count} threads by {_LAYER_NAMES.get(layer, layer)}"
    if layer == "workqueue":
        return NOTE, found, _LAYERS[layer] + ": parallel loops then start 20 x faster"
    if count < usable_cores():
        return NOTE, found, "unset NUMBA_NUM_THREADS to use all cores"
    return OK, found, ""


_LAYER_NAMES = {"omp": "OpenMP", "tbb": "TBB", "workqueue": "Numba's workqueue"}


def _run_parallel_loop() -> None:
    import numpy as np

    from minitorch.creation import from_numpy

    # Long enough that no backend would keep it to one thread.
    (from_numpy(np.ones(1 << 20, dtype=np.float32)) + 1.0).sum().item()


def _kernel_cache() -> Finding:
    from fast_ops.launch import cache_folder

    folder = cache_folder()
    if folder is None:
        advice = "export NUMBA_CACHE_DIR=<a folder>"
        return NOTE, "no folder can be written to: each start compiles anew", advice
    return OK, str(folder), ""


def _writable(folder: Path) -> bool:
    """Whether files can be made in the folder, or the folder itself where it must be
    made first."""
    while not folder.exists():
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


# ----------------------------------------------------------------- GPU and compilers


def _driver() -> Finding:
    name = "nvcuda" if sys.platform == "win32" else "cuda"
    if ctypes.util.find_library(name) is None:
        return NOTE, "none", "none needed: NUMBA_ENABLE_CUDASIM=1 simulates a GPU"
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    if shutil.which(command[0]) is None:
        return OK, "libcuda found", ""
    run = subprocess.run(command, capture_output=True, text=True, timeout=20)
    gpus = run.stdout.strip().splitlines()
    if run.returncode != 0 or not gpus:
        return BROKEN, "nvidia-smi fails", "reload the driver, or restart the machine"
    return OK, "; ".join(gpus), ""


def _numba_cuda() -> Finding:
    status, found, _ = _package("numba-cuda")
    if status == OK:
        return OK, found, ""
    if ctypes.util.find_library("cuda") is None:
        return NOTE, "not installed", f"for a GPU: {CUDA}"
    return MISSING, "not installed", CUDA


_SIMULATED = """
from minitorch.creation import ones
assert ones(3, device="cuda").sum().item() == 3
"""


def _simulator() -> Finding:
    """Run our kernels in Numba's CUDA simulator, in a process of its own: whether Numba
    simulates is decided when it is imported."""
    missing = [name for name in ("numba_cuda", "greenlet") if find_spec(name) is None]
    if missing:
        needs = " and ".join(missing).replace("_", "-")
        return NOTE, f"needs {needs}", f"for GPU kernels without a GPU: {CUDA}"
    run = subprocess.run(
        [sys.executable, "-c", _SIMULATED],
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    if run.returncode != 0:
        last = (run.stderr.strip().splitlines() or ["it fails"])[-1]
        return BROKEN, last, CUDA
    on = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
    return OK, "works; on" if on else "works; NUMBA_ENABLE_CUDASIM=1 turns it on", ""


def _mojo() -> Finding:
    """The compiler, and whether it is the version that the kernels are written for."""
    from mojo_ops import build

    try:
        build.check_platform()
    except ModuleNotFoundError:
        return NOTE, "not installed", f"for the device mojo: {build.INSTALL}"
    except ImportError as error:
        return NOTE, str(error), 'use the device "cpu" here'
    found = f"{build.version()} at {build.compiler()}"
    if build.version() != build.WRITTEN_FOR:
        advice = f"the kernels are written for {build.WRITTEN_FOR}: {build.INSTALL}"
        return NOTE, found, advice
    return OK, found, ""


def _mojo_kernels() -> Finding:
    """Which functions are in Mojo, and which still are the CPU backend's."""
    from minitorch.backend import get_backend

    status, _, advice = _mojo()
    if status != OK:
        return NOTE, "not to be used without the compiler", advice
    from mojo_ops.fallback import names

    others = names(get_backend("mojo"))
    if not others:
        return OK, "all kernels are in Mojo", ""
    return OK, f'all in Mojo but these of the device "cpu": {", ".join(others)}', ""


def _mojo_cache() -> Finding:
    from mojo_ops import build

    folder = build.cache_folder()
    if not _writable(folder):
        return (
            NOTE,
            f"{folder} cannot be written to",
            f"export {build.CACHE}=<a folder>",
        )
    return OK, str(folder), ""


# ------------------------------------------------------------------------- the data


def _mnist() -> Finding:
    from minitorch.data import MNISTUnavailable, load_mnist
    from minitorch.data.mnist import DATA_VARIABLE, mnist_cache

    try:
        load_mnist(train=False, download=False)
        load_mnist(train=True, download=False)
    except MNISTUnavailable:
        advice = (
            "the first `minitorch train mnist` fetches it; without a network put its "
            f"files into a folder and export {DATA_VARIABLE}=<folder>"
        )
        return NOTE, "not on this machine", advice
    place = os.environ.get(DATA_VARIABLE) or mnist_cache()
    return OK, f"in {place}, checksums right", ""


def _data_cache() -> Finding:
    from minitorch.data import cache_folder

    folder = cache_folder()
    if not _writable(folder):
        advice = "export XDG_CACHE_HOME=<a folder>"
        return NOTE, f"{folder} cannot be written to", advice
    return OK, str(folder), ""
