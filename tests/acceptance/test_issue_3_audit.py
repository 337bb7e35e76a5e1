"""Issue 3, the wheel audit: the locked wheels on the real index, and the reader against NVIDIA's tools."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.build import index, sources
from harness.build.audit import fatbin, library
from harness.build.ranges import RangeFile
from harness.build.web import Web
from harness.profiles import load

pytestmark = pytest.mark.acceptance

Record = Callable[[str, object], None]
A100 = load("a100")


def audit(*words: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "harness", "audit", *words, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout)


def measured(document: dict[str, Any], record: Record) -> None:
    for key in ("seconds", "megabytes", "requests"):
        record(key, document[key])


def severities(document: dict[str, Any]) -> Counter[str]:
    return Counter(one["severity"] for one in document["findings"])


def test_the_p40_lock_passes(record_property: Record) -> None:
    code, document = audit("p40-sm61")
    measured(document, record_property)
    assert (code, document["verdict"]) == (0, "passed")
    torch = next(one for one in document["packages"] if one["name"] == "torch")
    assert torch["version"] == "2.7.1"
    assert "sm_60" in torch["built_for"]
    assert not severities(document)["unknown"]
    assert any(
        one["subject"] == "triton 3.3.1" and one["severity"] == "unused" for one in document["findings"]
    )


def test_the_a100_lock_passes(record_property: Record) -> None:
    code, document = audit("a100")
    measured(document, record_property)
    assert (code, document["verdict"]) == (0, "passed")
    assert severities(document)["runs"] >= 20


def test_torch_2_8_0_is_refused_on_a_p40(record_property: Record) -> None:
    code, document = audit("p40-sm61", "--torch", "2.8.0")
    measured(document, record_property)
    assert (code, document["verdict"]) == (25, "refused")
    by_library = {one["library"]: one for one in document["findings"] if one["library"]}
    assert by_library["torch/lib/libtorch_cuda.so"]["severity"] == "refused"
    assert "torch 2.7.1" in by_library["torch/lib/libtorch_cuda.so"]["todo"]
    assert by_library["torch/lib/libtorch_cuda_linalg.so"]["severity"] == "runs"


# --- against NVIDIA's tools ---------------------------------------------------------------------------------


def fetch(folder: Path, package: str, version: str, *names: str) -> list[Path]:
    tags = index.target_tags(A100, A100.software.targets[0])
    paths = []
    with Web(sources.here()) as web:
        offer = index.Index(web, sources.here()).find(package, version=version, hashes=(), tags=tags)
        assert offer is not None
        with zipfile.ZipFile(io.BufferedReader(RangeFile(web, offer.address), 1 << 16)) as archive:
            for name in names:
                paths.append(folder / Path(name).name)
                with archive.open(name) as packed, paths[-1].open("wb") as file:
                    while chunk := packed.read(1 << 20):
                        file.write(chunk)
                paths[-1].chmod(0o755)
    return paths


@pytest.mark.parametrize(
    ("package", "version", "name"),
    [
        ("torch", "2.8.0", "torch/lib/libtorch_cuda_linalg.so"),
        ("torch", "2.7.1", "torch/lib/libtorch_cuda.so"),
        ("nvidia-curand-cu12", "10.3.7.77", "nvidia/curand/lib/libcurand.so.10"),
        ("vllm", "0.24.0", "vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so"),
        ("nvidia-cudnn-cu12", "9.5.1.17", "nvidia/cudnn/lib/libcudnn_ops.so.9"),
    ],
)
def test_large_libraries_agree_with_cuobjdump(
    package: str, version: str, name: str, tmp_path: Path, record_property: Record
) -> None:
    (tool,) = fetch(tmp_path, "triton", "3.6.0", "triton/backends/nvidia/bin/cuobjdump")
    (path,) = fetch(tmp_path, package, version, name)
    started = time.monotonic()
    with path.open("rb") as file:
        found = library.read(name, file, size=path.stat().st_size, jumps=True)
    record_property("seconds_ours", round(time.monotonic() - started, 3))
    ours: Counter[tuple[str, int]] = Counter()
    for held, count in found.containers.items():
        for code in held:
            ours[code.kind, code.architecture] += count
    theirs: Counter[tuple[str, int]] = Counter()
    started = time.monotonic()
    for option, kind in (("elf", "sass"), ("ptx", "ptx")):
        done = subprocess.run([tool, f"--list-{option}", path], capture_output=True, text=True, check=False)
        for number in re.findall(r"\.(?:sm|compute)_(\d+)[af]?\.(?:cubin|ptx)", done.stdout):
            theirs[kind, int(number)] += 1
    record_property("seconds_cuobjdump", round(time.monotonic() - started, 1))
    assert {key: count for key, count in ours.items() if key[0] != "other"} == theirs
    record_property("entries", sum(theirs.values()))


def test_suffixes_as_nvidia_writes_them(tmp_path: Path) -> None:
    """ptxas and fatbinary of CUDA 13.2 make containers whose architecture is known."""
    folder = "nvidia/cu13/bin"
    ptxas, writer = fetch(tmp_path, "nvidia-cuda-nvcc", "13.2.86", f"{folder}/ptxas", f"{folder}/fatbinary")
    for word in ("75", "90", "90a", "100", "100a", "100f", "103", "120f"):
        source, cubin, fat = (tmp_path / f"k.{kind}" for kind in ("ptx", "cubin", "fatbin"))
        source.write_text(
            f".version 9.0\n.target sm_{word}\n.address_size 64\n.visible .entry k(.param .u64 p){{ ret; }}\n"
        )
        subprocess.run([ptxas, "-arch", f"sm_{word}", source, "-o", cubin], check=True)
        images = [
            f"--image3=kind={kind},sm={word},file={file}" for kind, file in (("elf", cubin), ("ptx", source))
        ]
        subprocess.run(
            [writer, "--create", fat, "-64", *images], check=True, env={**os.environ, "LC_ALL": "C"}
        )
        file = io.BytesIO(fat.read_bytes())
        size = fatbin.body_bytes(file.read(16), remaining=fat.stat().st_size - 16)
        held = fatbin.entries(size, file.read, lambda count, file=file: file.seek(count, 1) and None)
        assert sorted(map(str, held)) == [f"compute_{word}", f"sm_{word}"]
