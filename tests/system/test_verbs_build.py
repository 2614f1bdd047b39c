"""The C parts build here and for 64-bit Arm, and run clean under the sanitizers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from injectors.verbs import build as building
from injectors.verbs.build import Built, build, compile_part, compiler
from injectors.verbs.layout import ACTIONS, Kind
from injectors.verbs.self_test import Driven, self_test
from racelab.errors import MissingPartError

LIBRARIES = ("gate.so", "softhca.so")
CROSS = "aarch64-linux-gnu-gcc"


@pytest.fixture
def command() -> str:
    try:
        return compiler()
    except MissingPartError as error:
        pytest.skip(str(error))


def test_it_builds_once_a_version(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = build()
    made = first.gate.stat().st_ino
    assert build().gate.stat().st_ino == made
    self_test(first)
    sources = tmp_path / "sources"
    shutil.copytree(building.SOURCES, sources)
    monkeypatch.setattr(building, "SOURCES", sources)
    with (sources / "gate.c").open("a") as file:
        file.write("/* changed */\n")
    assert build().folder != first.folder
    assert not list(tmp_path.glob("racelab/verbs/.building-*"))


def test_without_a_compiler_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(MissingPartError, match="no C compiler on PATH") as caught:
        build()
    assert "apt-get install gcc libibverbs-dev" in str(caught.value.next)


def test_it_builds_for_64_bit_arm(command: str, tmp_path: Path) -> None:
    if shutil.which(CROSS) is None:
        pytest.skip(f"no {CROSS}: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross")
    for part in LIBRARIES:
        # the headers of libibverbs are the same on every machine; those of the C library must be Arm's
        compile_part(CROSS, part, tmp_path / part, "-idirafter", "/usr/include")
        machine = (tmp_path / part).read_bytes()[18:20]
        assert machine == b"\xb7\x00", "EM_AARCH64"


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_it_runs_clean_under_the_sanitizers(command: str, tmp_path: Path, sanitizer: str) -> None:
    runtime = _runtime(command, "libasan.so" if "address" in sanitizer else "libtsan.so")
    for part in (*LIBRARIES, "driver"):
        compile_part(command, part, tmp_path / part, "-g", f"-fsanitize={sanitizer}", "-Wl,-z,undefs")
    built = Built(tmp_path)
    reports = tmp_path / "report"
    driven = Driven(
        built,
        environment={
            "LD_PRELOAD": f"{runtime}:{built.preload(simulated=True)}",
            "ASAN_OPTIONS": f"log_path={reports}:detect_leaks=0",
            "UBSAN_OPTIONS": f"log_path={reports}:print_stacktrace=1",
            "TSAN_OPTIONS": f"log_path={reports}",
        },
    )
    try:
        _everything(driven)
    finally:
        driven.close()
    said = [file.read_text() for file in tmp_path.glob("report*")]
    assert not said, said[0]
    assert driven.child.returncode == 0


def _runtime(command: str, library: str) -> str:
    found = subprocess.run([command, f"-print-file-name={library}"], capture_output=True, text=True, check=True)
    path = found.stdout.strip()
    if not Path(path).is_absolute():
        pytest.skip(f"{command} has no {library}")
    return path


def _everything(driven: Driven) -> None:
    """Each action and each end of a queue pair once, with many threads at work before."""
    driven.watch(1, 900_000, 64)
    assert driven.ask("threads 4") == "800"
    for number, action in enumerate(("hold", "lose-completion"), 2):
        driven.watch(number, 0, 64, ACTIONS[action])
        for line in ("0 0 64 7 s", "0 64 64 8 u", "0 128 32 9 si", "0 0 64 0 sr"):
            assert driven.ask(f"post {line}") == "0"
        driven.process.command(Kind.RELEASE, watch=number)
        assert driven.ask("poll 3").count(":0") == 3
    driven.watch(4, 0, 64, ACTIONS["ghost"])
    for line in ("0 0 64 7 s", "0 64 64 8 s"):
        assert driven.ask(f"post {line}") == "0"
    assert driven.ask("poll 2").count(":") == 2
    driven.process.command(Kind.RELEASE, watch=4)
    driven.watch(5, 0, 64)
    assert driven.ask("post 1 0 64 7 s") == "0"
    assert driven.ask("destroy 1") == "0"
    driven.process.command(Kind.FORGET)
    assert driven.ask("dereg") == "0"
