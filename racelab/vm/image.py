"""The machine's files, made once and kept in the user's cache: packages, vmlinux, modules, initramfs.

~/.cache/racelab/softroce/
    tree/           packages that the host lacks, laid over its files inside the machine; QEMU runs from there
    kernel/         vmlinux and the modules in order
    manifest.json   every package taken, with its version and SHA-256; written last
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from racelab.errors import LabError, MissingPartError
from racelab.vm import kernel, packages

Say = Callable[[str], None]

MAKING_MB = 700
"""What it takes while it is made: 591 MB were measured, of which 175 stay."""

KERNEL = "linux-image-amd64"
"""The stock kernel: the one for clouds has neither rdma_rxe nor 9p."""

QEMU = "qemu-system-x86_64"
PACKAGES = ("qemu-system-x86", "busybox-static", "iproute2", "nftables", "ibverbs-providers", "libibverbs1", "libnuma1")
MODULES = (
    *("virtio_pci", "virtio_net", "9pnet_virtio", "9p", "overlay"),
    *("crc32_generic", "crc32c_generic", "rdma_rxe", "ib_uverbs", "rdma_ucm", "veth"),
    *("nf_tables", "nft_objref", "nft_numgen", "nft_queue", "nfnetlink_queue", "bridge"),
    *("sch_netem", "sch_prio", "cls_u32"),
)
GUEST = Path(__file__).with_name("guest")
_KERNEL_FILES = ("./boot/vmlinuz*", "./lib/modules/*/kernel/*", "./lib/modules/*/modules.builtin")
_BUSYBOX = ("sh", "mount", "insmod", "switch_root", "mkdir", "cat", "cp", "echo", "poweroff")


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What an image was made of; `recipe` tells it from one that would be made of other things."""

    kernel: str
    recipe: str
    packages: list[packages.Package]


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """Where a made image lies."""

    folder: Path
    manifest: Manifest

    @property
    def vmlinux(self) -> Path:
        """What QEMU boots."""
        return self.folder / "kernel" / "vmlinux"

    @property
    def tree(self) -> Path:
        """The packages, unpacked."""
        return self.folder / "tree"

    @property
    def modules(self) -> Path:
        """The modules, numbered in the order in which they are loaded."""
        return self.folder / "kernel" / "modules"

    @property
    def whole(self) -> bool:
        """Whether all of it is there: others clean caches, too."""
        program = self._own_qemu.is_file() or shutil.which(QEMU) is not None
        return program and self.vmlinux.is_file() and self.modules.is_dir()

    @property
    def _own_qemu(self) -> Path:
        return self.tree / "usr/bin" / QEMU

    def qemu(self) -> tuple[str, dict[str, str], list[str]]:
        """The program, the environment it needs, and its arguments for firmware: the host's, or from the tree.

        Raises:
            MissingPartError: it is in neither.
        """
        if self._own_qemu.is_file():
            libraries = self.tree / "usr/lib/x86_64-linux-gnu"
            firmware = [word for name in ("qemu", "seabios") for word in ("-L", str(self.tree / "usr/share" / name))]
            return str(self._own_qemu), {"LD_LIBRARY_PATH": str(libraries)}, firmware
        found = shutil.which(QEMU)
        if found is None:
            raise MissingPartError(f"no {QEMU}", next="racelab cluster up softroce --rebuild")
        return found, {}, []

    def initramfs(self) -> Path:
        """The first file system, made anew when the guest's own files have changed."""
        guest = sorted(file for file in GUEST.iterdir() if file.is_file())
        digest = hashlib.sha256(b"".join(file.name.encode() + file.read_bytes() for file in guest)).hexdigest()[:12]
        made = self.folder / f"initramfs-{digest}"
        if not made.is_file():
            for old in self.folder.glob("initramfs-*"):
                old.unlink(missing_ok=True)
            _write(made, kernel.initramfs(self._entries(guest)))
        return made

    def _entries(self, guest: list[Path]) -> Iterator[kernel.Entry]:
        for name in ("bin", "modules", "guest", "proc", "sys", "dev", "host", "packages", "layer", "root"):
            yield name, kernel.FOLDER, b""
        busybox = self.tree / "usr/bin/busybox"
        yield "bin/busybox", kernel.FILE, (busybox if busybox.is_file() else Path("/bin/busybox")).read_bytes()
        for name in _BUSYBOX:
            yield f"bin/{name}", kernel.LINK, b"busybox"
        modules = sorted(self.modules.iterdir())
        for file in modules:
            yield f"modules/{file.name}", kernel.FILE, file.read_bytes()
        yield "modules/order", kernel.FILE, "\n".join(file.name for file in modules).encode()
        for file in guest:
            yield ("init" if file.name == "init" else f"guest/{file.name}"), kernel.FILE, file.read_bytes()


def cache() -> Path:
    """The folder of the machine's files."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "racelab" / "softroce"


def load() -> Image | None:
    """The image that is there, if one was finished and all of it still is."""
    file = cache() / "manifest.json"
    try:
        manifest = msgspec.json.decode(file.read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError):
        return None
    found = Image(folder=cache(), manifest=manifest)
    return found if manifest.recipe == recipe() and found.whole else None


def recipe() -> str:
    """Of what is asked for: packages and modules by name."""
    return hashlib.sha256(repr((KERNEL, PACKAGES, MODULES)).encode()).hexdigest()[:12]


def make(say: Say) -> Image:
    """Make the image; `say` is told what is being done.

    Raises:
        MissingPartError: this host is no Debian on x86-64.
        LabError: the registry, a package or the disk fails.
    """
    packages.check_host()
    folder = cache()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _check_space(folder)
        (folder / "manifest.json").unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".making-") as scratch:
            return _make(folder, Path(scratch), say)
    except OSError as error:
        raise LabError(f"cannot make the machine's image: {error}", file=folder, next="free some space") from None


def _check_space(folder: Path) -> None:
    free_mb = shutil.disk_usage(folder).free // 10**6
    if free_mb < MAKING_MB:
        raise LabError(
            f"making the machine's image takes {MAKING_MB} MB, and {free_mb} MB are free",
            file=folder,
            next="free some space, or set XDG_CACHE_HOME to a folder that has it",
        )


def _make(folder: Path, scratch: Path, say: Say) -> Image:
    registry = packages.Registry(scratch / "apt")
    say("reading the package index")
    registry.refresh()
    wanted = registry.lacking(PACKAGES)
    release = registry.kernel(KERNEL)
    say(f"fetching {release} and {len(wanted)} packages that are not here")
    files = registry.fetch([*wanted, release], scratch / "packages")
    taken = [packages.describe(file) for file in files]
    say("unpacking")
    for file in files:
        if file.name.startswith("linux-image-"):
            packages.unpack(file, scratch / "linux", *_KERNEL_FILES)
        else:
            packages.unpack(file, scratch / "tree")
    packages.merge(scratch / "tree")
    (scratch / "kernel/modules").mkdir(parents=True)
    for number, file in enumerate(kernel.in_order(MODULES, scratch / "linux/lib/modules")):
        target = scratch / "kernel/modules" / f"{number:03}-{kernel.module_name(file)}.ko"
        target.write_bytes(kernel.module_data(file))
    packed = next((scratch / "linux/boot").glob("vmlinuz*"))
    (scratch / "kernel/vmlinux").write_bytes(kernel.vmlinux(packed.read_bytes()))
    for name in ("tree", "kernel"):
        shutil.rmtree(folder / name, ignore_errors=True)
        (scratch / name).mkdir(exist_ok=True)
        (scratch / name).rename(folder / name)
    for old in folder.glob("initramfs-*"):
        old.unlink()
    manifest = Manifest(kernel=release.removeprefix("linux-image-"), recipe=recipe(), packages=taken)
    _write(folder / "manifest.json", msgspec.json.format(msgspec.json.encode(manifest)))
    return Image(folder=folder, manifest=manifest)


def _write(file: Path, data: bytes) -> None:
    """Under its name only when it is whole."""
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    fresh.write_bytes(data)
    fresh.rename(file)
