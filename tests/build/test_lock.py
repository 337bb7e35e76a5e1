"""Locking with real uv against the real index: the same bytes again, and nothing written when it fails."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.build import lock, render
from harness.console import Output
from harness.errors import LockError, ProfileError, StaleError
from harness.profiles import root

OUTPUT = Output(as_json=True)


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of its own, to be spoilt."""
    for part in ("profiles", "docker"):
        shutil.copytree(root() / part, tmp_path / part)
    shutil.copy(root() / "pyproject.toml", tmp_path)
    monkeypatch.setenv("VERLOCK_ROOT", str(tmp_path))
    return tmp_path


def spoil(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def content(folder: Path) -> dict[str, str]:
    return {
        str(path): path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*")) if path.is_file()
    }


def test_the_p40_lock_comes_out_again_byte_for_byte() -> None:
    """All profiles are checked so by the lint session; here one, that the way itself is kept."""
    assert lock.lock(["p40"], check=True, output=OUTPUT) == []


def test_the_lock_of_an_older_verl_comes_out_again_and_an_altered_one_is_found(copy: Path) -> None:
    """`lock cpu` covers them too, and writes neither an image's installer lock nor tools beside them."""
    assert lock.lock(["cpu@0.8.0"], check=True, output=OUTPUT) == []
    home = copy / "docker" / "rendered" / "cpu" / "verl-0.8.0"
    assert sorted(path.name for path in home.iterdir()) == ["build.lock", "requirements.lock"]
    spoil(home / "requirements.lock", "transformers==4.57.6", "transformers==4.57.5")
    with pytest.raises(StaleError, match=r"cpu/verl-0\.8\.0/requirements\.lock"):
        lock.lock(["cpu@0.8.0"], check=True, output=OUTPUT)


def test_no_image_is_rendered_with_an_older_verl() -> None:
    with pytest.raises(ProfileError, match=r"verlock climb --verl 0\.8\.0"):
        render.publish(["cpu@0.8.0"], check=True)


def test_a_planted_gpu_package_stops_it_before_anything_is_written(copy: Path) -> None:
    spoil(copy / "profiles" / "p40-sm61.yaml", "software:\n", "software:\n  verl_extras: [vllm]\n")
    spoil(copy / "profiles" / "p40-sm61.yaml", "torch: { version: 2.7.1 }", "torch: { version: 2.11.0 }")
    spoil(copy / "profiles" / "p40-sm61.yaml", "manylinux_2_28", "manylinux_2_31")
    before = content(copy / "docker")
    with pytest.raises(LockError, match=r"vllm 0\.24\.0 is forbidden by the profile") as caught:
        lock.lock(["p40"], check=False, output=OUTPUT)
    assert "no kernels below sm_70" in str(caught.value)
    assert content(copy / "docker") == before


def test_a_wheel_of_torch_that_the_profile_does_not_name(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_wheel: Callable[[Path, str, str], Path]
) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    made = make_wheel(wheels, "torch", "2.13.0+cpu")
    made.rename(wheels / made.name.replace("-py3-none-any", "-1-py3-none-any"))
    monkeypatch.setenv("UV_FIND_LINKS", str(wheels))
    with pytest.raises(LockError, match="none of those that the profile names"):
        lock.lock(["cpu"], check=False, output=OUTPUT)


def test_a_pin_that_does_not_exist(copy: Path) -> None:
    spoil(copy / "profiles" / "_base.yaml", "ray: 2.59.0", "ray: 2.59.99")
    with pytest.raises(LockError, match=r"ray==2\.59\.99"):
        lock.lock(["p40"], check=False, output=OUTPUT)
