"""Coverage-guided fuzzing of the readers of traces: no input crashes one, none hangs it.

    pip install atheris            # 3.0 has wheels for Python 3.11 and later; no part of the project's own extras
    python tests/fuzz/fuzz_traces.py -max_total_time=60 -timeout=10 CORPUS tests/data/traces

New inputs go to the folder CORPUS; a crash is written beside it.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["racelab.traces"]):
    from racelab.traces import recognise, values

from racelab.errors import RacelabError


def read(data: bytes) -> None:
    """One input, as a file of any format and as a value."""
    text = data.decode("utf-8", "replace")
    for reader in (lambda: recognise.read_text(text, "fuzz"), lambda: values.parse(text)):
        try:
            reader()
        except (RacelabError, ValueError):
            continue


if __name__ == "__main__":
    atheris.Setup(sys.argv, read)
    atheris.Fuzz()
