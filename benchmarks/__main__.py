"""Every benchmark in turn: `make bench`, or `python -m benchmarks [NAME...]`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Run them one after the other, each in a process of its own; the number that failed."""
    files = [file for file in sorted(HERE.glob("*.py")) if not file.name.startswith("_")]
    wanted = set(sys.argv[1:]) or {file.stem for file in files}
    failed = 0
    for file in files:
        if file.stem in wanted:
            print(f"\n== {file.stem}", flush=True)
            failed += subprocess.run([sys.executable, str(file)], cwd=HERE.parent, check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
