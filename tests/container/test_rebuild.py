"""What a real engine builds twice is the same, and each planted difference is found at its path."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.build import base
from harness.build.engine import Engine, ask, judge
from harness.build.image.compare import compare
from harness.build.image.make import place
from harness.build.image.normalise import Canonical, normalise
from harness.console import Output
from harness.profiles import load

Make = Callable[..., Path]

SAME = (
    "RUN groupadd --gid 1000 u && useradd --uid 1000 --gid 1000 --no-log-init --create-home u",
    "RUN mkdir -p /opt/a && echo one > /opt/a/one && ln /opt/a/one /opt/a/two && rm -r /usr/share/perl5",
    "WORKDIR /opt/a",
    "USER 1000:1000",
)
COMPILE = (
    'mkdir -p /opt/s && echo x=1 > /opt/s/m.py && python3 -c "import py_compile as p; '
    "p.compile('/opt/s/m.py', '/opt/m.pyc', invalidation_mode=p.PycInvalidationMode.TIMESTAMP)\""
)
# Each is different at every build.
PLANTED = {
    "opt/time": ("date > /opt/time", "time stamp"),
    "opt/m.pyc": (COMPILE, "byte code"),
    "var/log/step.log": ("cat /proc/sys/kernel/random/uuid > /var/log/step.log", "log"),
    "root/.cache/x": ("mkdir -p /root/.cache && cat /proc/sys/kernel/random/uuid > /root/.cache/x", "cache"),
    "opt/owned": ("touch /opt/owned && chown $(date +%N | sed 's/^0*//') /opt/owned", "ownership"),
    "opt/random": ("cat /proc/sys/kernel/random/uuid > /opt/random", "unknown"),
}


def canonical(saved: Path) -> Canonical:
    return normalise(saved, saved.with_suffix(".oci.tar"), name="verlock-test:x")


def test_two_builds_at_different_times_are_one_archive(make: Make) -> None:
    lines = ("ARG SOURCE_DATE_EPOCH=0", *SAME)
    one, two = canonical(make("one", *lines)), canonical(make("two", *lines))
    assert compare(one.path, two.path) == []
    assert (one.archive, one.manifest, one.config) == (two.archive, two.manifest, two.config)
    assert one.path.read_bytes() == two.path.read_bytes()


def test_podman_builds_the_same_archive(make: Make, small_base: str, tmp_path: Path) -> None:
    """Another family of engines, with another way of telling what a layer changes."""
    if shutil.which("podman") is None:
        pytest.skip("podman is not installed here")
    lines = ("ARG SOURCE_DATE_EPOCH=0", *SAME)
    one = canonical(make("one", *lines))
    podman = judge(ask("podman", "podman"))
    assert podman.usable
    made = base.prepare(
        load("cpu"), place(load("cpu")), update=False, fresh=False, output=Output(as_json=True)
    )
    (tmp_path / "Dockerfile").write_text("\n".join([f"FROM {small_base}", *lines]) + "\n")
    saved, tag = tmp_path / "podman.tar", "verlock-test:podman"
    build = ("build", "--no-cache", "--network", "host", "--tag", tag, tmp_path)
    for words in (("load", "--input", made.archive), build, ("save", "--output", saved, tag), ("rmi", tag)):
        done = subprocess.run(podman.command(*words), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    two = canonical(saved)
    assert compare(one.path, two.path) == []
    assert (one.archive, one.manifest) == (two.archive, two.manifest)


def test_planted_differences_are_found_and_classed(make: Make) -> None:
    lines = [f"RUN {command}" for command, _ in PLANTED.values()]
    one, two = canonical(make("one", *lines)), canonical(make("two", *lines))
    found = {difference.path: difference.kind for difference in compare(one.path, two.path)}
    assert found == {path: kind for path, (_, kind) in PLANTED.items()}


def test_the_canonical_archive_loads_runs_and_saves_as_itself(
    make: Make, engine: Engine, tmp_path: Path
) -> None:
    made = canonical(make("one", "ARG SOURCE_DATE_EPOCH=0", *SAME))

    def said(*arguments: str | Path) -> str:
        done = subprocess.run(engine.command(*arguments), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    said("load", "--input", made.path)
    try:
        known = said("image", "inspect", "verlock-test:x", "--format", "{{.Id}}")
        assert known in {made.config, made.manifest}
        run = ("run", "--rm", "--network", "none", "verlock-test:x")
        assert (
            said(*run, "sh", "-c", "id -u; pwd; cat two; test ! -e /usr/share/perl5") == "1000\n/opt/a\none"
        )
        again = tmp_path / "again.tar"
        said("save", "--output", again, "verlock-test:x")
        assert canonical(again).archive == made.archive
    finally:
        said("rmi", "verlock-test:x")


def test_skopeo_and_the_record_agree_on_the_digest(make: Make) -> None:
    made = canonical(make("one", "RUN true"))
    command = ["skopeo", "inspect", "--format", "{{.Digest}}", f"oci-archive:{made.path}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == made.manifest


@pytest.mark.parametrize("given", [True, False])
def test_a_secret_leaves_no_trace(make: Make, tmp_path: Path, given: bool) -> None:
    marker = b"MARKER-7f3a"
    (tmp_path / "pip.conf").write_bytes(
        b"[global]\nindex-url = https://user:" + marker + b"@localhost/simple\n"
    )
    mounts = "--mount=type=secret,id=pip,target=/etc/pip.conf "
    mounts += "--mount=type=secret,id=ca,target=/etc/ssl/certs/ca-certificates.crt"
    options = ("--secret", f"id=pip,src={tmp_path / 'pip.conf'}") if given else ()
    step = (
        f"RUN {mounts} python3 -m venv /opt/v && {'grep -q MARKER' if given else '! test -s'} /etc/pip.conf"
    )
    saved = make("secret", step, options=options)
    assert marker not in saved.read_bytes()
    assert marker not in canonical(saved).path.read_bytes()
