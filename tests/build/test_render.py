"""Rendered files: current, whole, and without what a template must not contain."""

from __future__ import annotations

import errno
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
import yaml

from harness.build import files, render
from harness.build.lock import folder
from harness.errors import DiskFullError, RecordError, StaleError, VerlockError
from harness.profiles import load, names, root


def test_committed_renders_are_current() -> None:
    assert render.publish((), check=True) == []


@pytest.mark.parametrize("name", names())
def test_overrides_file_says_what_the_profile_says(name: str) -> None:
    profile = load(name)
    document = yaml.safe_load(render.render(profile)["overrides.yaml"])
    assert document["overrides"] == {key: setting.value for key, setting in profile.run.overrides.items()}
    assert document["on_cpu"] == {key: setting.value for key, setting in profile.run.on_cpu.items()}
    assert document["env"] == profile.environment_variables()


@pytest.mark.parametrize("name", names())
def test_dockerfile_needs_no_new_engine_and_leaves_no_trace(name: str) -> None:
    text = render.render(load(name))["Dockerfile"]
    # Docker 20.10's built-in frontend, and no pull of another one.
    assert not re.search(r"<<|--link|--network|--build-context|^# *syntax=", text, re.MULTILINE)
    assert not re.search(r"\bcurl\b|\bwget\b|apt(-get)? upgrade|COPY \. ", text)
    assert "USER 1000:1000" in text
    installs = re.findall(r"(?:pip install|pip sync).*?(?=&&|\n\n)", text, re.DOTALL)
    assert len(installs) == 3
    assert all("--require-hashes" in install and "--only-binary :all:" in install for install in installs)


@pytest.mark.parametrize("name", names())
def test_secrets_are_mounted_in_the_builder_only(name: str) -> None:
    text = render.render(load(name))["Dockerfile"]
    final = text[text.rindex("\nFROM ") :]
    assert "secret" not in final
    assert "/context" not in final


@pytest.mark.parametrize("name", names())
def test_a_login_shell_finds_the_environment_too(name: str) -> None:
    """/etc/profile replaces PATH, and KubeRay starts `ray` with `bash -lc`."""
    text = render.render(load(name))["Dockerfile"]
    final = text[text.rindex("\nFROM ") :]
    assert "'PATH=/opt/verlock/bin:$PATH' > /etc/profile.d/verlock.sh" in final


def hadolint(path: Path) -> tuple[int, str]:
    tool = Path(sysconfig.get_path("scripts")) / "hadolint"
    done = subprocess.run([tool, "--no-color", path], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("name", names())
def test_hadolint_has_nothing_to_say(name: str) -> None:
    assert hadolint(folder(load(name)) / "Dockerfile") == (0, "")


def test_hadolint_finds_what_is_planted(tmp_path: Path) -> None:
    text = render.render(load("cpu"))["Dockerfile"]
    (tmp_path / "Dockerfile").write_text(
        text.replace("FROM ${BASE}\n", "FROM debian\nRUN cd /opt && ls | wc\n")
    )
    code, said = hadolint(tmp_path / "Dockerfile")
    assert code == 1
    assert [rule for rule in ("DL3003", "DL3006", "DL4006") if rule not in said] == []


def test_torch_index_only_where_the_profile_has_one() -> None:
    with_index = [name for name in names() if "UV_DEFAULT_INDEX" in render.render(load(name))["Dockerfile"]]
    assert with_index == ["cpu"]


def test_a_changed_file_is_stale_and_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for part in ("profiles", "docker"):
        shutil.copytree(root() / part, tmp_path / part)
    monkeypatch.setenv("VERLOCK_ROOT", str(tmp_path))
    path = folder(load("p40")) / "overrides.yaml"
    path.write_text(
        path.read_text(encoding="utf-8").replace("trainer.total_epochs: 2", "trainer.total_epochs: 3")
    )
    with pytest.raises(StaleError, match=r"docker/rendered/p40-sm61/overrides\.yaml") as caught:
        render.publish(["p40"], check=True)
    assert "trainer.total_epochs: 3" in str(caught.value)
    assert "total_epochs: 3" in path.read_text(encoding="utf-8")
    assert render.publish(["p40"], check=False) == [path]
    assert render.publish(["p40"], check=True) == []


@pytest.mark.parametrize(
    ("number", "kind", "message"),
    [
        (errno.ENOSPC, DiskFullError, "no space left"),
        (errno.EDQUOT, DiskFullError, "no space left"),
        (errno.EACCES, RecordError, "cannot be written"),
        (errno.EROFS, RecordError, "cannot be written"),
    ],
)
def test_what_the_system_refuses(tmp_path: Path, number: int, kind: type[VerlockError], message: str) -> None:
    with pytest.raises(kind, match=message), files.disk_errors(tmp_path / "file"):
        raise OSError(number, "refused")


def test_a_full_disk_keeps_the_old_file(small_disk: Path) -> None:
    path = small_disk / "file"
    files.write(path, "old")
    with pytest.raises(DiskFullError, match="no space left"):
        files.write(path, "new" * 2 * 10**6)
    assert [other.name for other in small_disk.iterdir()] == ["file"]
    assert path.read_text(encoding="utf-8") == "old"
