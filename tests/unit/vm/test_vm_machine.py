"""The machine's state file: found again, told from another process with its number, ended and removed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from racelab.errors import LabError, MissingPartError, UsageError
from racelab.vm import commands, image, machine, packages, users


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Something that runs until it is ended."""
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as child:
        yield child
        child.kill()


def written(pid: int, started: int) -> machine.Machine:
    found = machine.Machine(
        pid=pid, started=started, port=1, accelerator="tcg", kernel="6", python=sys.executable, boot_s=1.0
    )
    machine.folder().mkdir(parents=True)
    (machine.folder() / "machine.json").write_bytes(msgspec.json.encode(found))
    return found


def start_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def test_none_is_up_at_first() -> None:
    assert machine.running() is None
    assert commands.status("softroce") == {"cluster": "softroce", "up": False, "built": False}
    assert commands.down("softroce")["ended"] is False


def test_a_running_one_is_found_and_ended(process: subprocess.Popen[bytes]) -> None:
    written(process.pid, start_of(process.pid))
    found = machine.running()
    assert found is not None
    assert commands.down("softroce")["ended"] is True
    assert not found.alive
    assert not machine.folder().exists()


USER = """
import sys
from racelab.vm import users
sys.argv = ["racelab", "run", "mine.yaml", "--cluster", "softroce"]
with users.using():
    print("in", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def user() -> Iterator[subprocess.Popen[str]]:
    """A process that uses the machine until it is told to go on, and has no lease."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", USER], stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "in\n"
        yield child
        child.kill()


def test_one_that_another_process_uses_is_ended_only_by_force(
    process: subprocess.Popen[bytes], user: subprocess.Popen[str]
) -> None:
    written(process.pid, start_of(process.pid))
    owner = rf"in use by process {user.pid} \(racelab run mine.yaml --cluster softroce\)"
    with pytest.raises(LabError, match=owner) as caught:
        commands.down("softroce")
    assert "--force" in str(caught.value)
    with pytest.raises(LabError, match=owner):
        commands.up("softroce", lambda line: None, rebuild=True)
    assert process.poll() is None
    assert commands.down("softroce", force=True)["ended"] is True


def test_a_process_that_has_ended_uses_nothing(process: subprocess.Popen[bytes], user: subprocess.Popen[str]) -> None:
    written(process.pid, start_of(process.pid))
    user.kill()
    user.wait()
    assert commands.down("softroce")["ended"] is True


def test_what_this_process_uses_itself_is_no_obstacle(process: subprocess.Popen[bytes]) -> None:
    written(process.pid, start_of(process.pid))
    with users.using():
        assert commands.down("softroce")["ended"] is True


@pytest.mark.parametrize(("name", "said"), [("local", "no machine of its own"), ("loacl", "unknown cluster")])
def test_other_clusters_have_no_machine(name: str, said: str) -> None:
    for command in (commands.status, commands.down):
        with pytest.raises(UsageError, match=said):
            command(name)


def test_another_process_with_its_number_is_left_alone(process: subprocess.Popen[bytes]) -> None:
    machine.end(written(process.pid, start_of(process.pid) - 1))
    assert process.poll() is None
    assert not machine.folder().exists()


def test_what_a_dead_one_left_is_removed() -> None:
    written(os.getpid(), 1)
    assert machine.running() is None
    assert not machine.folder().exists()


def test_a_boot_that_breaks_says_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stand-in for QEMU that gets as far as a stage, and says what the guest's first process says."""
    stand_in = tmp_path / "qemu"
    stand_in.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        "console = next(word for word in sys.argv if word.startswith('file:')).removeprefix('file:')\n"
        "open(console, 'w').write('Linux 6.1\\nracelab: stage modules\\nracelab: broke: module veth: no file\\n')\n"
    )
    stand_in.chmod(0o755)
    monkeypatch.setattr(image.Image, "qemu", lambda self: (str(stand_in), {}, []))
    monkeypatch.setattr(image.Image, "initramfs", lambda self: tmp_path / "initramfs")
    with pytest.raises(LabError) as caught:
        machine.boot(made_image(tmp_path), "tcg", lambda line: None)
    assert "broke in stage 'modules': module veth: no file" in caught.value.what
    assert "Linux 6.1" in caught.value.what
    assert not machine.folder().exists()


def test_a_boot_without_qemu_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingPartError, match="no qemu-system-x86_64"):
        machine.boot(made_image(tmp_path), "tcg", lambda line: None)
    assert not machine.folder().exists()


def made_image(folder: Path) -> image.Image:
    return image.Image(folder=folder, manifest=image.Manifest(kernel="6", recipe=image.recipe(), packages=[]))


@pytest.mark.parametrize("lacking", ["tree/usr/bin/qemu-system-x86_64", "kernel/vmlinux", "kernel/modules/000-veth.ko"])
def test_an_image_that_lost_a_part_is_none(lacking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is made anew; one that is whole is taken."""
    monkeypatch.setenv("PATH", "")
    for part in ("tree/usr/bin/qemu-system-x86_64", "kernel/vmlinux", "kernel/modules/000-veth.ko"):
        file = image.cache() / part
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (image.cache() / "manifest.json").write_bytes(msgspec.json.encode(made_image(image.cache()).manifest))
    assert image.load() is not None
    (image.cache() / lacking).unlink()
    if lacking.endswith(".ko"):
        (image.cache() / lacking).parent.rmdir()
    assert image.load() is None


def test_an_image_is_not_begun_where_it_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "check_host", lambda: "apt")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=20 * 10**6))
    with pytest.raises(LabError, match="takes 700 MB, and 20 MB are free") as caught:
        commands.up("softroce", lambda line: pytest.fail(f"begun: {line}"))
    assert "XDG_CACHE_HOME" in str(caught.value)
    assert [file.name for file in image.cache().iterdir()] == ["lock"]


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(LabError, match="Not a directory") as caught:
        commands.up("softroce", lambda line: None)
    assert "XDG_CACHE_HOME" in str(caught.value)


def test_only_the_machine_is_brought_up() -> None:
    with pytest.raises(UsageError):
        commands.up("local", lambda line: None)
