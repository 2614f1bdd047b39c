"""What is taken from a kernel's package: the image inside a bzImage, modules in order, a cpio archive."""

from __future__ import annotations

import gzip
import lzma
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from racelab.errors import LabError
from racelab.vm import kernel

ELF = kernel.ELF + b"the kernel" * 100


def bzimage(payload: bytes) -> bytes:
    """A boot sector, one more sector of set-up, then the payload 64 bytes in."""
    image = bytearray(1024 + 64) + payload + b"what follows it"
    image[0x1F1] = 1
    image[0x1FE:0x200] = b"\x55\xaa"
    struct.pack_into("<II", image, 0x248, 64, len(payload))
    return bytes(image)


@pytest.mark.parametrize("packed", [lzma.compress(ELF) + struct.pack("<I", len(ELF)), gzip.compress(ELF)])
def test_the_image_inside_a_bzimage(packed: bytes) -> None:
    assert kernel.vmlinux(bzimage(packed)) == ELF


@pytest.mark.parametrize(
    ("image", "says"),
    [
        (b"\0" * 2048, "no bzImage"),
        (bzimage(b"????"), "packed with 3f3f3f3f"),
        (bzimage(gzip.compress(b"no image")), "no ELF"),
    ],
)
def test_what_is_no_kernel_is_said(image: bytes, says: str) -> None:
    with pytest.raises(LabError, match=says):
        kernel.vmlinux(image)


def module(folder: Path, name: str, depends: str) -> None:
    data = b"\x7fELF\0license=GPL\0depends=" + depends.encode() + b"\0name=x\0"
    (folder / f"{name}.ko").write_bytes(data)


def test_modules_come_after_those_they_depend_on(tmp_path: Path) -> None:
    module(tmp_path, "rdma_rxe", "ib_core,ip6-udp-tunnel")
    module(tmp_path, "ib_core", "")
    module(tmp_path, "ip6_udp_tunnel", "ib_core")
    (tmp_path / "modules.builtin").write_text("kernel/net/veth.ko\n")
    names = [kernel.module_name(file) for file in kernel.in_order(["veth", "rdma_rxe"], tmp_path)]
    assert names == ["ib_core", "ip6_udp_tunnel", "rdma_rxe"]


def test_a_packed_module_is_read(tmp_path: Path) -> None:
    (tmp_path / "veth.ko.xz").write_bytes(lzma.compress(b"\x7fELF\0depends=\0"))
    (file,) = kernel.in_order(["veth"], tmp_path)
    assert kernel.module_data(file).startswith(kernel.ELF)


def test_a_kernel_without_a_module_is_said(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no module rdma_rxe"):
        kernel.in_order(["rdma_rxe"], tmp_path)


@pytest.mark.skipif(shutil.which("cpio") is None, reason="cpio is not here to read the archive")
def test_the_archive_is_what_cpio_reads(tmp_path: Path) -> None:
    entries = [("bin", kernel.FOLDER, b""), ("bin/sh", kernel.LINK, b"busybox"), ("init", kernel.FILE, b"#!/bin/sh\n")]
    archive = gzip.decompress(kernel.initramfs(entries))
    subprocess.run(["cpio", "-idm", "--quiet"], input=archive, cwd=tmp_path, check=True)
    assert (tmp_path / "bin/sh").readlink() == Path("busybox")
    assert (tmp_path / "init").read_text() == "#!/bin/sh\n"
    assert (tmp_path / "init").stat().st_mode & 0o111
