"""What a worker for GPUs sees of the driver, where its libraries lie by themselves."""

from __future__ import annotations

import ctypes.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from pathlib import Path
from assignments.grading import sandbox
folder = Path({folder!r})
view = sandbox.View(folder, gpu=True)
files = sandbox._file_system(view, sandbox.Limits())
assert (str(folder), str(folder)) in files["binds"], files["binds"]
environment = sandbox._environment(view, sandbox.Limits(), "namespaces")
assert environment["LD_LIBRARY_PATH"] == str(folder)
assert environment["CUDA_HOME"] == str(folder / "cuda")
assert (str(folder / "cuda/nvvm"), str(folder / "cuda/nvvm")) in files["binds"]
view = sandbox.View(folder)
assert "LD_LIBRARY_PATH" not in sandbox._environment(view, sandbox.Limits(), "limits")
assert (str(folder), str(folder)) not in sandbox._file_system(view, sandbox.Limits())[
    "binds"
]
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")
def test_a_driver_in_a_folder_of_its_own(tmp_path):
    """Some library under the name of the driver's is found as the driver's would be."""
    some = ctypes.util.find_library("m")
    places = [
        Path(p) for p in ("/lib64", "/usr/lib64", *Path("/usr/lib").glob("*-gnu"))
    ]
    found = [place / some for place in places if some and (place / some).exists()]
    if not found:
        pytest.skip("no C library to copy")
    folder = tmp_path / "driver"
    folder.mkdir()
    shutil.copy(found[0], folder / "libcuda.so.1")
    (folder / "cuda" / "nvvm").mkdir(parents=True)
    program = PROGRAM.format(folder=str(folder.resolve()))
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder),
        "CUDA_PATH": str(folder / "cuda"),
    }
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
