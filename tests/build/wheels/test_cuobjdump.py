"""The reader against NVIDIA's own: cuobjdump, which triton's wheel carries, on libraries of real wheels.

Only the members that are compared are fetched, by range requests: 5 MB in all.
"""

from __future__ import annotations

import io
import platform
import re
import subprocess
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from harness.build import index, sources
from harness.build.audit import elf, library
from harness.build.ranges import RangeFile
from harness.build.web import Web
from harness.profiles import load

A100 = load("a100")
CUOBJDUMP = "triton/backends/nvidia/bin/cuobjdump"
# Compressed with zstd and not, with "a" and "f" variants, PTX beside SASS, one and several architectures.
LIBRARIES = [
    ("torchvision", "0.26.0", "torchvision/_C.so"),
    ("torchaudio", "2.11.0", "torchaudio/lib/libtorchaudio.abi3.so"),
    ("vllm", "0.24.0", "vllm/_flashmla_C.abi3.so"),
    ("vllm", "0.24.0", "vllm/_qutlass_C.abi3.so"),
    ("nvidia-cufile-cu12", "1.11.1.6", "nvidia/cufile/lib/libcufile.so.0"),
]

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the wheels' cuobjdump is for x86-64")


def member(web: Web, package: str, version: str, name: str, folder: Path) -> Path:
    tags = index.target_tags(A100, A100.software.targets[0])
    offer = index.Index(web, sources.here()).find(package, version=version, hashes=(), tags=tags)
    assert offer is not None
    with zipfile.ZipFile(io.BufferedReader(RangeFile(web, offer.address), 1 << 16)) as archive:
        path = folder / Path(name).name
        path.write_bytes(archive.read(name))
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def fetched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Path]]:
    folder = tmp_path_factory.mktemp("real")
    with Web(sources.here()) as web:
        tool = member(web, "triton", "3.6.0", CUOBJDUMP, folder)
        found = {name: member(web, package, version, name, folder) for package, version, name in LIBRARIES}
    assert web.meter.bytes < 12e6
    return tool, found


def listed(tool: Path, path: Path, kind: str) -> Counter[int]:
    """Architectures as cuobjdump counts them; its names for SASS leave suffixes out."""
    done = subprocess.run([tool, f"--list-{kind}", path], capture_output=True, text=True, check=False)
    return Counter(map(int, re.findall(r"\.(?:sm|compute)_(\d+)[af]?\.(?:cubin|ptx)", done.stdout)))


@pytest.mark.parametrize("name", [name for _, _, name in LIBRARIES])
def test_agrees_with_cuobjdump(fetched: tuple[Path, dict[str, Path]], name: str) -> None:
    tool, paths = fetched
    path = paths[name]
    with path.open("rb") as file:
        jumped = library.read(name, file, size=path.stat().st_size, jumps=True)
        file.seek(0)
        streamed = library.read(name, file, size=path.stat().st_size, jumps=False)
    assert jumped.containers == streamed.containers
    ours: dict[str, Counter[int]] = {"sass": Counter(), "ptx": Counter(), "other": Counter()}
    for held, count in jumped.containers.items():
        for code in held:
            ours[code.kind][code.architecture] += count
    assert ours["sass"] == listed(tool, path, "elf")
    assert ours["ptx"] == listed(tool, path, "ptx")
    assert ours["sass"]


def test_cut_off_anywhere(fetched: tuple[Path, dict[str, Path]]) -> None:
    """A real library that ends early is refused or read in part; never a crash, never more than it holds."""
    data = fetched[1]["vllm/_qutlass_C.abi3.so"].read_bytes()
    whole = library.read("x", io.BytesIO(data), size=len(data), jumps=False)
    for cut in range(0, len(data), len(data) // 40):
        part = data[:cut]
        with pytest.raises(elf.ElfError):
            library.read("x", io.BytesIO(part), size=len(part), jumps=True)
        if cut > elf.HEADER_BYTES:
            found = library.read("x", io.BytesIO(part), size=len(part), jumps=False)
            assert sum(found.containers.values()) <= sum(whole.containers.values())
