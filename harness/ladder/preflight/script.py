"""The training command at the end of a shell script, found by running the script with nothing behind it.

Variables, arrays, ``$@`` and conditions are bash's business, so bash runs the script. But every program that
could do something (Python, pip, uv, Ray, downloads) is one of ours, first on ``PATH``: it writes down how it
was called and ends. The working folder is a copy of nothing, the home folder is empty but for what the caller
puts there, and a time limit ends what waits.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import OverrideError
from harness.ladder.preflight.command_line import Asked, parse

# Programs that train, install, download or start something. `cd` and shell built-ins act in the script's
# own process; mkdir, date, dirname and the like are harmless in the temporary folder.
PYTHONS = ("python", "python3", "uv", "torchrun", "accelerate", "deepspeed")
RECORDED = (
    *("pip", "pip3", "conda", "mamba", "apt", "apt-get", "yum", "brew", "npm"),
    *(
        "wget",
        "curl",
        "git",
        "hf",
        "huggingface-cli",
        "modelscope",
        "hdfs",
        "hadoop",
        "aws",
        "gsutil",
        "rsync",
    ),
    *("ray", "docker", "sbatch", "srun", "kubectl", "ssh", "scp", "sudo", "pkill", "killall", "nvidia-smi"),
    *("rm", "mv", "kill", "reboot", "shutdown", "sleep", "tee", "nohup", "npu-smi"),
)
_SECONDS = 60
_OURS = frozenset({"PATH", "VERLOCK_CALLS", "BASH_FUNC_ulimit%%"})
# A recorder ends well, but for questions to Python: `python -c "import torch_npu"` must find nothing. Each
# process has a file of its own: parts of a pipeline run at once, and bash writes a call in several pieces.
_RECORDER = """#!{shell}
{{ printf '%s\\0' "${{0##*/}}" "$@"; printf '\\n\\0'; }} >> "$VERLOCK_CALLS/$$"
case "${{0##*/}}" in
  python*) [ "$1" = -c ] && exit 1 ;;
  tee) while IFS= read -r _; do :; done ;;
  nohup) exec "$@" ;;
  nvidia-smi|npu-smi) exit 1 ;;
esac
exit 0
"""


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What a script would have done: training commands, and the other calls, which did not happen."""

    asked: tuple[Asked, ...]
    kept: tuple[str, ...]
    exit_code: int
    said: str


def record(
    script: Path, arguments: Sequence[str] = (), *, home: Path | None = None, environ: Mapping[str, str] = {}
) -> Recorded:
    """Run ``script`` with recorders; relative paths in its command start from the caller's folder.

    Raises :class:`OverrideError` for a script that is not there, and where bash is missing.
    """
    bash = shutil.which("bash")
    if not script.is_file() or bash is None:
        what = "bash is not installed" if script.is_file() else "there is no such script"
        raise OverrideError(what, where=str(script), todo="give the command itself after --")
    with tempfile.TemporaryDirectory(prefix="verlock-script-") as name:
        place = Path(name)
        return _run(bash, script.resolve(), arguments, place, home, environ)


def _run(
    bash: str,
    script: Path,
    arguments: Sequence[str],
    place: Path,
    home: Path | None,
    added: Mapping[str, str],
) -> Recorded:
    shims, calls, work = place / "bin", place / "calls", place / "work"
    for folder in (shims, calls, work):
        folder.mkdir()
    for program in (*PYTHONS, *RECORDED):
        shim = shims / program
        shim.write_text(_RECORDER.format(shell=bash))
        shim.chmod(0o755)
    environ = {**_plain(os.environ), **added, "VERLOCK_CALLS": str(calls)}
    environ["PATH"] = os.pathsep.join([str(shims), environ.get("PATH", os.defpath)])
    environ["HOME"] = str(home or Path.home())
    # A limit that the cluster grants may be refused here, and would end a script with `set -e`.
    environ["BASH_FUNC_ulimit%%"] = "() { :; }"
    code, said = _wait([*_without_network(), bash, str(script), *arguments], work, environ)
    seen = list(_calls(calls))
    variables = {key: value for key, value in environ.items() if key not in _OURS}
    return Recorded(
        asked=tuple(_asked(seen, variables)), kept=tuple(_kept(seen)), exit_code=code, said=said[-2000:]
    )


def _plain(environ: Mapping[str, str]) -> dict[str, str]:
    """Without the variables by which bash would run something else first."""
    return {k: v for k, v in environ.items() if k not in {"BASH_ENV", "ENV", "PYTHONPATH", "PYTHONHOME"}}


def _without_network() -> list[str]:
    """A name space without a network, where the system lets us have one; the recorders are there anyway."""
    unshare = shutil.which("unshare")
    if sys.platform != "linux" or unshare is None:
        return []
    words = [unshare, "--net"] if os.geteuid() == 0 else [unshare, "--user", "--map-current-user", "--net"]
    tried = subprocess.run([*words, "true"], capture_output=True, check=False)
    return words if tried.returncode == 0 else []


def _wait(command: Sequence[str], work: Path, environ: Mapping[str, str]) -> tuple[int, str]:
    process = subprocess.Popen(
        command,
        cwd=work,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
        return 124, said.decode(errors="replace")
    return process.returncode, said.decode(errors="replace")


def _calls(folder: Path) -> Iterator[list[str]]:
    """In the order of their beginning, as far as the clock of the file system tells; then by process."""
    for path in sorted(folder.iterdir(), key=lambda path: (path.stat().st_mtime_ns, int(path.name))):
        for call in path.read_bytes().decode(errors="replace").split("\0\n\0"):
            if call:
                yield call.split("\0")


def _asked(calls: Sequence[Sequence[str]], environ: Mapping[str, str]) -> Iterator[Asked]:
    for call in calls:
        if call[0] in PYTHONS and "-c" not in call[1:2]:
            try:
                yield parse(call, environ=environ, folder=Path.cwd())
            except OverrideError:  # a Python program that trains nothing
                continue


def _kept(calls: Sequence[Sequence[str]]) -> Iterator[str]:
    for call in calls:
        if call[0] not in PYTHONS and call[0] != "tee":
            yield shlex.join(call[:6])
