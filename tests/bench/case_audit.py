"""The architecture reader against NVIDIA's cuobjdump, on one real library."""

from __future__ import annotations

import io
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

from measure import Case
from place import Place, checked

from harness.build import index, sources
from harness.build.audit import library
from harness.build.ranges import RangeFile
from harness.build.web import Web
from harness.profiles import load

TOOL = ("triton", "3.6.0", "triton/backends/nvidia/bin/cuobjdump")
LIBRARY = ("vllm", "0.24.0", "vllm/_moe_C_stable_libtorch.abi3.so")


def cases(place: Place) -> Iterator[Case]:
    """Both list what one library of vLLM holds; it is fetched by range requests, some 40 MB."""
    folder = place.folder("audit")
    with Web(sources.here()) as web:
        tool, path = (_member(web, *what, folder) for what in (TOOL, LIBRARY))

    def ours() -> float:
        begin = time.perf_counter()
        with path.open("rb") as file:
            found = library.read(path.name, file, size=path.stat().st_size, jumps=True)
        assert found.codes
        return time.perf_counter() - begin

    def theirs() -> float:
        begin = time.perf_counter()
        assert "sm_" in checked([tool, "--list-elf", path], cwd=folder)
        return time.perf_counter() - begin

    yield Case(
        id="audit",
        what=f"GPU architectures of {path.name} ({path.stat().st_size / 1e6:.0f} MB)",
        unit="s",
        sides={"verlock": ours, "cuobjdump": theirs},
    )


def _member(web: Web, package: str, version: str, name: str, folder: Path) -> Path:
    profile = load("a100")
    tags = index.target_tags(profile, profile.software.targets[0])
    offer = index.Index(web, sources.here()).find(package, version=version, hashes=(), tags=tags)
    assert offer is not None
    path = folder / Path(name).name
    with zipfile.ZipFile(io.BufferedReader(RangeFile(web, offer.address), 1 << 20)) as archive:
        path.write_bytes(archive.read(name))
    path.chmod(0o755)
    return path
