"""A kernel to boot at once: its uncompressed image, the modules that it needs, and the first file system.

`vmlinux` is what a bzImage unpacks itself to; QEMU starts it directly (PVH), which saves the unpacking
under emulation. Modules are put in the order of their own `depends=` notes.
"""

from __future__ import annotations

import gzip
import lzma
import shutil
import struct
import subprocess
import zlib
from collections.abc import Iterable
from pathlib import Path

from racelab.errors import LabError, MissingPartError

_SETUP_SECTORS = 0x1F1
_PAYLOAD = 0x248
"""Offsets in a bzImage: Linux Documentation/x86/boot.rst, `setup_sects`, `payload_offset`, `payload_length`."""

_SECTOR_BYTES = 512
ELF = b"\x7fELF"

Entry = tuple[str, int, bytes]
"""A path, its mode with the file type, and its content (of a link: where it leads)."""

FOLDER, FILE, LINK = 0o040755, 0o100755, 0o120777


def vmlinux(image: bytes) -> bytes:
    """The ELF image inside a bzImage.

    Raises:
        LabError: this is no bzImage, or its payload is packed in a way that is not known here.
    """
    if image[0x1FE:0x200] != b"\x55\xaa":
        raise LabError("the kernel's package holds no bzImage")
    sectors = image[_SETUP_SECTORS] or 4
    offset, length = struct.unpack_from("<II", image, _PAYLOAD)
    start = (sectors + 1) * _SECTOR_BYTES + offset
    unpacked = _unpacked(image[start : start + length])
    if not unpacked.startswith(ELF):
        raise LabError("the kernel's payload is no ELF image")
    return unpacked


def _unpacked(payload: bytes) -> bytes:
    if payload.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMADecompressor().decompress(payload)
    if payload.startswith(b"\x1f\x8b"):
        return zlib.decompressobj(wbits=31).decompress(payload)
    if payload.startswith(b"\x28\xb5\x2f\xfd"):
        if shutil.which("zstd") is None:
            raise MissingPartError("this kernel is packed with zstd", next="apt-get install zstd")
        return subprocess.run(["zstd", "-dcq"], input=payload, capture_output=True, timeout=120).stdout
    raise LabError(f"a kernel packed with {payload[:4].hex()} is not known here")


def module_data(file: Path) -> bytes:
    """A module's ELF image; newer kernels keep it packed."""
    data = file.read_bytes()
    return lzma.decompress(data) if file.name.endswith(".xz") else data


def module_name(file: Path) -> str:
    """The name by which other modules ask for it."""
    return file.name.split(".", 1)[0].replace("-", "_")


def in_order(wanted: Iterable[str], folder: Path) -> list[Path]:
    """The modules in `folder` that `wanted` need, each after those that it depends on; built-in ones left out.

    Raises:
        LabError: the kernel has no such module.
    """
    files = {module_name(file): file for file in folder.rglob("*.ko*")}
    built_in = {
        module_name(Path(line)) for file in folder.rglob("modules.builtin") for line in file.read_text().split()
    }
    ordered: dict[str, Path] = {}

    def add(name: str) -> None:
        if name in ordered or name in built_in:
            return
        if name not in files:
            raise LabError(f"this kernel has no module {name}", next="racelab cluster up softroce --rebuild")
        for needed in _depends(module_data(files[name])):
            add(needed)
        ordered[name] = files[name]

    for name in wanted:
        add(name.replace("-", "_"))
    return list(ordered.values())


def _depends(data: bytes) -> list[str]:
    at = data.find(b"\0depends=")
    if at < 0:
        return []
    listed = data[at + 9 : data.index(b"\0", at + 9)].decode()
    return [name.replace("-", "_") for name in listed.split(",") if name]


def initramfs(entries: Iterable[Entry]) -> bytes:
    """A gzipped cpio archive ("newc", Linux Documentation/driver-api/early-userspace/buffer-format.rst)."""
    parts = [_record(number, *entry) for number, entry in enumerate(entries, 1)]
    return gzip.compress(b"".join(parts) + _record(0, "TRAILER!!!", 0, b""), compresslevel=1, mtime=0)


def _record(number: int, path: str, mode: int, content: bytes) -> bytes:
    name = path.encode() + b"\0"
    fields = (number, mode, 0, 0, 2 if mode == FOLDER else 1, 0, len(content), 0, 0, 0, 0, len(name), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields)
    return _padded(head + name) + _padded(content)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
