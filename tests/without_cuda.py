"""Plays what needs Mooncake 0.3.14 on a machine without CUDA: its builds load libcuda.so.1, and here that is a stub.

    python tests/without_cuda.py FOLDER [PYTEST ARGUMENTS]

Puts the wheels into FOLDER and beside them a libcuda.so.1 of our own, each of whose functions answers that there is
no device: enough for the TCP transport, which has nothing to do with one, and nothing that a GPU's behaviour could be
learned from. Nothing is installed; the tests find it by PYTHONPATH and LD_LIBRARY_PATH.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

WHEELS = ("mooncake-transfer-engine-cuda13==0.3.14", "nvidia-cuda-runtime==13.0.96")
NO_DEVICE = 100
"""CUDA_ERROR_NO_DEVICE"""
ROW = ("tests/system/test_what_each_fault_does.py", "-k", "ticket")


def main() -> int:
    """Fetch, build, play; the exit code of the tests."""
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    folder = Path(sys.argv[1]).resolve()
    site, libraries = folder / "site", folder / "lib"
    for place in (site, libraries):
        place.mkdir(parents=True, exist_ok=True)
    download = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), *WHEELS]
    subprocess.run(download, check=True)
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as file:
            file.extractall(site)
    runtime = next(site.glob("nvidia/**/libcudart.so.13"))
    shutil.copy(runtime, libraries)
    build_stub(site / "mooncake" / "engine.so", libraries)
    environment = os.environ | {"PYTHONPATH": str(site), "LD_LIBRARY_PATH": str(libraries)}
    asked = sys.argv[2:] or ROW
    root = Path(__file__).resolve().parent.parent
    return subprocess.run([sys.executable, "-m", "pytest", *asked], env=environment, cwd=root, check=False).returncode


def build_stub(engine: Path, libraries: Path) -> None:
    """A libcuda.so.1 with every function that the engine asks of one."""
    listed = subprocess.run(["nm", "-D", "--undefined-only", str(engine)], check=True, capture_output=True, text=True)
    names = [line.split()[-1] for line in listed.stdout.splitlines()]
    functions = [name for name in names if name.startswith("cu") and name[2:3].isupper()]
    source = libraries / "stub.c"
    source.write_text("".join(f"int {name}(void) {{ return {NO_DEVICE}; }}\n" for name in functions))
    build = ["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(libraries / "libcuda.so.1"), str(source)]
    subprocess.run(build, check=True)


if __name__ == "__main__":
    sys.exit(main())
