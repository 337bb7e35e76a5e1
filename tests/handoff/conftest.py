"""A checkout of its own with a small image: all that a hand-off reads is real, only the image is small."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.build import base_lock, lockfile
from harness.build.image.context import parts
from harness.build.image.layers import apply
from harness.build.image.normalise import pack
from harness.console import Output
from harness.evidence.model import Image, Run, Rung
from harness.handoff.bundle import Order, bundle
from harness.profiles import load, root

FINGERPRINT = "sha256:" + "f" * 64
SITE = "opt/verlock/lib/python3.11/site-packages"
DISTRIBUTIONS = {
    "ray": ("2.59.0", "License-Expression: Apache-2.0"),
    "tensordict": ("0.10.0", "License-Expression: not SPDX at all!"),
    "torch": ("2.13.0+cpu", "License-Expression: BSD-3-Clause"),
    "transformers": ("5.9.0", "Classifier: License :: OSI Approved :: Apache Software License"),
    "verl": ("0.9.1", "Summary: says nothing of a licence"),
}
PACKAGES = {"base-files": "12.4+deb12u15", "python3": "3.11.2-1+b1"}
QUIET = Output(as_json=True)


@dataclass(frozen=True, kw_only=True)
class Place:
    """A checkout with ``dist/cpu``."""

    root: Path
    manifest: str
    config: str

    @property
    def home(self) -> Path:
        return self.root / "dist" / "cpu"

    @property
    def bundle(self) -> Path:
        return self.home / "handoff"

    def prove(self, **changes: object) -> Run:
        """Write a passed run of this image, as changed."""
        folder = self.root / "runs" / "20261130-120000-000-abcd"
        folder.mkdir(parents=True, exist_ok=True)
        env = Rung(
            name="env",
            status="passed",
            seconds=1.0,
            verified="as locked",
            details={"patches": {"engine-seed": "applied"}},
        )
        ppo = Rung(
            name="ppo",
            status="passed",
            seconds=9.0,
            verified="4 steps",
            details={"command": ["python", "-m", "x", "trainer.nnodes=2", "trainer.device=cpu"]},
        )
        run = Run(
            id=folder.name,
            profile="cpu",
            command=["verlock", "climb"],
            status="passed",
            exit_code=0,
            started="2026-11-30T12:00:00.000Z",
            pid=1,
            fingerprint={"environment": "e" * 64, "image": FINGERPRINT},
            image=Image(manifest=self.manifest, config=self.config),
            settings={"rollout": "hf", "reward": "mock", "model": "tiny", "data": "tiny"},
            rungs=[env, ppo],
        ).model_copy(update=changes)
        (folder / "run.json").write_text(run.json_text())
        return run


def files(distributions: Mapping[str, tuple[str, str]], packages: Mapping[str, str]) -> dict[str, str]:
    status = "\n\n".join(
        f"Package: {name}\nStatus: install ok installed\nArchitecture: amd64\nVersion: {version}"
        for name, version in packages.items()
    )
    return {
        "var/lib/dpkg/status": status,
        **{
            f"{SITE}/{name}-{version}.dist-info/METADATA": f"Metadata-Version: 2.4\nName: {name}\n"
            f"Version: {version}\n{licence}\n"
            for name, (version, licence) in distributions.items()
        },
    }


def layer(content: Mapping[str, str]) -> tarfile.TarFile:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for name, text in content.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    raw.seek(0)
    return tarfile.open(fileobj=raw)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Place]:
    """Make the checkout; what the image holds can be given, what the locks say stays."""
    home = tmp_path / "dist" / "cpu"
    rendered = tmp_path / "docker" / "rendered" / "cpu"
    home.mkdir(parents=True)
    shutil.copytree(root() / "docker" / "rendered" / "cpu", rendered)
    shutil.copytree(root() / "profiles", tmp_path / "profiles")
    (tmp_path / "harness").symlink_to(root() / "harness")
    pins = "".join(
        f"{name}=={version} \\\n    --hash=sha256:{'0' * 64}\n"
        for name, (version, _licence) in DISTRIBUTIONS.items()
    )
    (rendered / "requirements.lock").write_text(lockfile.sealed(pins, head=["a lock"]))
    monkeypatch.setenv("VERLOCK_ROOT", str(tmp_path))
    locked = [
        base_lock.Package(name=name, version=version, machine="amd64", sha256="1" * 64)
        for name, version in PACKAGES.items()
    ]
    (rendered / "base.lock").write_text(base_lock.text(load("cpu"), "amd64", locked))

    def make(
        *,
        distributions: Mapping[str, tuple[str, str]] = DISTRIBUTIONS,
        packages: Mapping[str, str] = PACKAGES,
    ) -> Place:
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Labels": {"verlock.fingerprint": FINGERPRINT}},
        }
        trees = [apply({}, layer(files(distributions, packages)), 0)]
        made = pack(trees, config, home / "image.tar", name="verlock:cpu")
        record = {
            "schema_version": 1,
            "profile": "cpu",
            "name": "verlock:cpu",
            "platform": "linux/amd64",
            "manifest": made.manifest,
            "config": made.config,
            "layers": made.layers,
            "archive": {"file": "image.tar", "sha256": made.archive, "bytes": made.size},
            "base": {"reference": "verlock-base:cpu", "digest": "sha256:" + "2" * 64},
            "fingerprint": FINGERPRINT,
            "parts": parts(load("cpu"), tmp_path),
            "revision": "0123456789abcdef0123456789abcdef01234567",
        }
        (home / "image.json").write_text(json.dumps(record))
        return Place(root=tmp_path, manifest=made.manifest, config=made.config)

    return make


@pytest.fixture
def place(small: Callable[..., Place]) -> Place:
    """The checkout with a proven image."""
    made = small()
    made.prove()
    return made


@pytest.fixture
def bundled(place: Place) -> Place:
    """... and its bundle."""
    bundle("cpu", Order(), QUIET)
    return place
