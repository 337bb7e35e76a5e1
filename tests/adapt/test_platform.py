"""The CPU platform has everything that verl's source asks a device module for."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch comes with the lock")
if importlib.util.find_spec("verl") is None:
    pytest.skip("verl comes with the lock", allow_module_level=True)

ROOT = Path(__file__).parents[2]
PLANTED = "no_device_has_this"  # asked for too: the probe must be able to miss something
ASKED = re.compile(r"get_torch_device\(\)\.(\w+)")
PROBE = """
import json, sys
from harness.adapt.platform import CpuPlatform
import verl.utils.device as device
module = device.get_torch_device()
asked = json.load(sys.stdin)
print(json.dumps({
    "missing": [name for name in asked if not hasattr(module, name)],
    "device": device.get_device_name(),
    "id": str(device.get_device_id()),
    "backend": device.get_nccl_backend(),
    "module": module.__name__,
    "called": [module.mem_get_info()[1] > 0, module.max_memory_allocated() > 0],
    "random_state": module.get_rng_state().numel() > 0,
}))
"""


def asked() -> dict[str, str]:
    """Attribute to the first file that asks for it."""
    found: dict[str, str] = {}
    (verl,) = importlib.util.find_spec("verl").submodule_search_locations  # type: ignore[union-attr,misc]
    for path in sorted(Path(verl).rglob("*.py")):
        for name in ASKED.findall(path.read_text(encoding="utf-8")):
            found.setdefault(name, path.relative_to(verl).as_posix())
    return found


@pytest.fixture(scope="module")
def probed() -> dict[str, object]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "VERL_PLATFORM": "cpu",
        "VERL_USE_EXTERNAL_MODULES": "harness.adapt.plugin",
    }
    command = [sys.executable, "-c", PROBE]
    done = subprocess.run(
        command,
        input=json.dumps([*sorted(asked()), PLANTED]),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_verl_is_searched_at_all() -> None:
    """The search below would be empty, and pass, if verl renamed the function."""
    assert {"empty_cache", "set_device", "mem_get_info", "synchronize"} <= asked().keys()
    assert len(asked()) > 12


def test_nothing_that_verl_asks_for_is_missing(probed: dict[str, object]) -> None:
    """A missing one is an AttributeError in the middle of a training step."""
    assert probed["missing"] == [PLANTED], asked()


def test_verl_sees_a_cpu(probed: dict[str, object]) -> None:
    """FSDP2 moves tensors to ``get_device_id()``: an index instead of a device would mean cuda:0."""
    wanted = {"device": "cpu", "id": "cpu", "backend": "gloo", "module": "harness.adapt.cpu_device"}
    assert {key: probed[key] for key in wanted} == wanted
    assert probed["called"] == [True, True]
    assert probed["random_state"]
