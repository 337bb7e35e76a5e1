"""Issue 5: the image that was proven here, by digest, through a registry, on a real Ray cluster and on Slurm.

All parts are real: an engine with a bridge of its own, Debian's docker-registry, Ray in two containers with
their own network namespaces, Debian's Slurm, and Apptainer. `.ci/engine`, `.ci/slurm` and
`.ci/apptainer` install them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.profiles import root

pytestmark = pytest.mark.acceptance

Record = Callable[[str, object], None]
NETWORK = "verlock-acceptance"
RUN_AS = 1000
SMALL = (
    "data.train_batch_size=8",
    "data.max_prompt_length=64",
    "data.max_response_length=16",
    "actor_rollout_ref.actor.ppo_mini_batch_size=8",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4",
    "critic.ppo_micro_batch_size_per_gpu=4",
    "trainer.test_freq=-1",
    "trainer.save_freq=2",
)


def verlock(*words: str, **variables: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "harness", *words, "--json"]
    environment = {**os.environ, **variables}
    done = ended(command, environment, root())
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return dict(json.loads(done.stdout))


def wait(what: Callable[[], object], seconds: float, why: str) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, f"{why}: not within {seconds} s"
        time.sleep(0.5)


@contextmanager
def daemon(*command: str | Path, log: Path, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process group that is ended with the block."""
    environment = {**os.environ, **variables}
    with log.open("ab") as out:
        process = subprocess.Popen(
            list(map(str, command)), stdout=out, stderr=out, env=environment, start_new_session=True
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that the image's user can reach."""
    folder = Path(os.environ.get("VERLOCK_ACCEPTANCE_HOME", "/var/tmp")) / f"verlock-issue-5-{os.getpid()}"
    folder.mkdir(parents=True)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def engine(place: Path) -> Iterator[dict[str, str]]:
    """An engine with networks of its own: that of CI has none."""
    address = f"unix://{place}/docker.sock"
    folders = {"--data-root": place / "data", "--exec-root": place / "exec", "--pidfile": place / "pid"}
    options = [str(word) for pair in folders.items() for word in pair]
    with daemon("dockerd", "--host", address, *options, "--bridge=none", log=place / "dockerd.log"):
        variables = {"DOCKER_HOST": address, "VERLOCK_DOCKER": "/usr/bin/docker"}
        wait(lambda: docker(variables, "version").returncode == 0, 60, "dockerd answers")
        docker(variables, "network", "create", NETWORK)
        yield variables
        for name in docker(variables, "ps", "--quiet").stdout.split():
            docker(variables, "kill", name)
        docker(variables, "network", "rm", NETWORK)
    # dockerd leaves the network namespace of containers without a network of their own mounted.
    subprocess.run(["umount", place / "exec" / "netns" / "default"], capture_output=True, check=False)


def ended(
    command: Sequence[str | Path], environment: Mapping[str, str], cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, check=False)


def docker(variables: Mapping[str, str], *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = ["/usr/bin/docker", *map(str, words)]
    return subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def proof(engine: dict[str, str], place: Path) -> Path:
    """The image, built, and the folder of a run that proves it: made in a container of it."""
    verlock("build", "cpu", **engine)
    verlock("climb", "--image", "--runs", str(place / "proofs"), **engine)
    return (place / "proofs" / "latest").resolve()


class Cluster:
    """A folder with data, model and runs, and a bundle to run on them."""

    def __init__(self, home: Path, engine: Mapping[str, str], proof: Path) -> None:
        self.home, self.engine, self.proof = home, engine, proof
        inputs = proof / "inputs"
        shutil.copytree(inputs, home / "data")
        shutil.copytree(inputs / "model", home / "models" / "model")
        for file in (home / "models" / "model").iterdir():
            file.chmod(0o644)  # safetensors writes for the owner alone
        (home / "runs").mkdir()
        os.chown(home / "runs", RUN_AS, RUN_AS)
        self.bundle = home / "bundle"
        self.manifest: dict[str, Any] = {}

    def hand_off(self, *words: str, steps: int) -> dict[str, Any]:
        sets = [
            part for text in (*SMALL, f"trainer.total_training_steps={steps}") for part in ("--set", text)
        ]
        given = ["--runs", str(self.proof.parent), "--run", str(self.proof), "--time-limit", "00:20:00"]
        document = verlock("handoff", "cpu", *given, *words, *sets, **self.engine)
        shutil.rmtree(self.bundle, ignore_errors=True)
        shutil.copytree(document["bundle"], self.bundle, copy_function=os.link)
        self.manifest = document
        return document

    def variables(self, **more: str) -> dict[str, str]:
        folders = {f"VERLOCK_{name.upper()}": str(self.home / name) for name in ("data", "models", "runs")}
        return {**os.environ, **self.engine, **folders, "VERLOCK_MEMORY": "8g", **more}

    def job(self, name: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        script = self.bundle / "jobs" / name
        return ended([script, *words], self.variables(**variables))

    def record(self, name: str = "verlock-cpu") -> dict[str, Any]:
        return dict(json.loads((self.home / "runs" / name / "latest" / "run.json").read_text()))

    @contextmanager
    def node(self, container: str, *words: str) -> Iterator[None]:
        """A container with a network namespace of its own, started by the bundle's script."""
        variables = self.variables(VERLOCK_NETWORK=NETWORK, VERLOCK_CONTAINER=container)
        script = self.bundle / "jobs" / "docker-run.sh"
        with daemon(script, *words, log=self.home / f"{container}.log", **variables):
            try:
                yield
            finally:
                docker(self.engine, "kill", container)

    def address(self, container: str) -> str:
        form = f"{{{{(index .NetworkSettings.Networks {NETWORK!r}).IPAddress}}}}".replace("'", '"')
        return docker(self.engine, "inspect", "--format", form, container).stdout.strip()

    def started(self) -> subprocess.Popen[str]:
        """Submit the job, as soon as the head takes one."""
        head = ("vl-head", 8265)
        wait(lambda: socket.socket().connect_ex((self.address(head[0]), head[1])) == 0, 1200, "the head")
        variables = self.variables(
            RAY_ADDRESS=f"http://{self.address(head[0])}:{head[1]}",
            VERLOCK_RAY=str(Path(sys.executable).with_name("ray")),
        )
        script = self.bundle / "jobs" / "ray-submit.sh"
        return subprocess.Popen(
            [script], env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def submit(self) -> tuple[int, str]:
        """Submit the job and wait for its end: exit code, and what it said."""
        job = self.started()
        said = job.communicate()[0]
        return job.returncode, said

    def checkpoint(self) -> int:
        path = self.home / "runs" / "verlock-cpu" / "checkpoints" / "latest_checkpointed_iteration.txt"
        return int(path.read_text()) if path.is_file() else 0


@pytest.fixture
def cluster(place: Path, engine: dict[str, str], proof: Path, request: pytest.FixtureRequest) -> Cluster:
    return Cluster(place / request.node.name[:40], engine, proof)


def steps_of(record: Mapping[str, Any]) -> list[int]:
    return list(next(rung["details"]["steps"] for rung in record["rungs"] if rung["name"] == "train"))


def test_through_a_registry_and_back_by_digest(
    cluster: Cluster, place: Path, record_property: Record
) -> None:
    port = free_port()
    settings = place / "registry.yml"
    settings.write_text(
        f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {place}/registry}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\n"
    )
    with daemon("docker-registry", "serve", settings, log=place / "registry.log"):
        wait(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, 30, "the registry answers")
        made = cluster.hand_off("--registry", f"127.0.0.1:{port}/ml/verlock", steps=2)
        assert not (cluster.bundle / "image.tar").exists()
        docker(cluster.engine, "rmi", "--force", made["image"]["config"])
        gone = docker(cluster.engine, "image", "inspect", made["image"]["config"])
        assert gone.returncode != 0, "the image is still here"
        done = cluster.job("docker-run.sh")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    back = docker(cluster.engine, "image", "inspect", "--format", "{{.Id}}", made["image"]["reference"])
    assert back.stdout.strip() == made["image"]["config"]
    record = cluster.record()
    assert record["status"] == "passed"
    assert record["fingerprint"]["image"] == made["fingerprint"]
    assert steps_of(record) == [1, 2]
    record_property("reference", made["image"]["reference"])
    record_property("seconds", record["seconds"])


def test_two_nodes_of_ray_train_two_ranks(cluster: Cluster, record_property: Record) -> None:
    cluster.hand_off("--nodes", "2", steps=4)
    with cluster.node("vl-head", "head"):
        wait(lambda: cluster.address("vl-head"), 300, "the head has an address")
        with cluster.node("vl-worker", "worker", "vl-head"):
            code, said = cluster.submit()
    assert code == 0, said[-4000:]
    record = cluster.record()
    env, train = record["rungs"]
    assert (record["status"], env["name"], train["name"]) == ("passed", "env", "train")
    assert "vl-head" in env["verified"]
    assert "vl-worker" in env["verified"]
    assert steps_of(record) == [1, 2, 3, 4]
    ranks = sorted(
        path.name for path in (cluster.home / "runs").glob("verlock-cpu/checkpoints/global_step_4/actor/*")
    )
    assert any("world_size_2_rank_0" in name for name in ranks), ranks
    assert any("world_size_2_rank_1" in name for name in ranks), ranks
    record_property("verified", [env["verified"], train["verified"]])
    record_property("seconds", record["seconds"])


def test_a_lost_worker_is_a_clear_failure_and_another_submit_goes_on(
    cluster: Cluster, record_property: Record
) -> None:
    cluster.hand_off("--nodes", "2", steps=30)
    with cluster.node("vl-head", "head"):
        wait(lambda: cluster.address("vl-head"), 300, "the head has an address")
        with cluster.node("vl-worker", "worker", "vl-head"):
            job = cluster.started()
            wait(lambda: cluster.checkpoint() >= 4 or job.poll() is not None, 1200, "a checkpoint of step 4")
            docker(cluster.engine, "kill", "vl-worker")
            said = job.communicate(timeout=600)[0]
        saved = cluster.checkpoint()
        failed = cluster.record()
        assert job.returncode != 0, said[-2000:]
        assert (failed["status"], failed["exit_code"]) == ("failed", 22)
        assert failed["failure"]["class"] == "distributed"
        assert "vl-worker" in failed["failure"]["cause"]
        assert f"checkpoint of step {saved}" in failed["failure"]["fix"]
        with cluster.node("vl-again", "worker", "vl-head"):
            code, said = cluster.submit()
    assert code == 0, said[-4000:]
    record = cluster.record()
    assert record["rungs"][-1]["details"]["resumed_from"] == saved
    assert steps_of(record) == list(range(saved + 1, 31))
    record_property("failure", failed["failure"])
    record_property("resumed_from", saved)
    record_property("seconds", [failed["seconds"], record["seconds"]])


def test_a_node_that_differs_stops_the_job_and_is_named(cluster: Cluster, record_property: Record) -> None:
    cluster.hand_off("--nodes", "2", steps=2)
    image = cluster.manifest["image"]["config"]
    planted = "/opt/verlock/lib/python3.11/site-packages/verl/trainer/main_ppo.py"
    docker(
        cluster.engine,
        "run",
        "--user=0",
        "--name=vl-plant",
        "--entrypoint=sh",
        image,
        "-c",
        f"echo '#' >> {planted}",
    )
    docker(cluster.engine, "commit", "--change", "USER 1000:1000", "vl-plant", "planted")
    start = ["ray", "start", "--block", "--address=vl-head:6379", "--num-cpus=16", "--num-gpus=1"]
    with cluster.node("vl-head", "head"):
        wait(lambda: cluster.address("vl-head"), 300, "the head has an address")
        runs = f"{cluster.home}/runs:/runs"
        command = ["run", "--rm", f"--network={NETWORK}", "--name=vl-odd", "--hostname=vl-odd", "-v", runs]
        command += ["--env=USER=verlock", "--entrypoint=env", "planted", *start]
        with daemon("/usr/bin/docker", *command, log=cluster.home / "odd.log", **cluster.engine):
            code, said = cluster.submit()
            docker(cluster.engine, "kill", "vl-odd")
    assert code != 0, said[-2000:]
    record = cluster.record()
    assert (record["status"], record["exit_code"]) == ("failed", 13)
    assert record["failure"]["class"] == "environment"
    assert "vl-odd" in record["failure"]["cause"]
    assert "vl-head" not in record["failure"]["cause"].partition("`verlock")[0]
    assert "main_ppo.py" in record["failure"]["cause"]
    record_property("cause", record["failure"]["cause"][:1500])


@pytest.fixture(scope="module")
def slurm(place: Path) -> Iterator[dict[str, str]]:
    """One node of Debian's Slurm, without systemd."""
    installed = ended([root() / ".ci" / "slurm"], os.environ)
    assert installed.returncode == 0, installed.stderr
    home = place / "slurm"
    (home / "state").mkdir(parents=True)
    (home / "spool").mkdir()
    host = socket.gethostname().split(".")[0]
    controller, node = free_port(), free_port()
    settings = {
        "ClusterName": "acceptance", "SlurmctldHost": f"{host}(127.0.0.1)", "SlurmUser": "root",
        "SlurmdUser": "root", "AuthType": "auth/munge", "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none", "SelectType": "select/cons_tres", "SelectTypeParameters": "CR_CPU",
        "StateSaveLocation": home / "state", "SlurmdSpoolDir": home / "spool", "MpiDefault": "none",
        "SlurmctldPidFile": home / "slurmctld.pid", "SlurmdPidFile": home / "slurmd.pid",
        "SlurmctldPort": controller, "SlurmdPort": node, "ReturnToService": "2",
        "AccountingStorageType": "accounting_storage/none", "JobAcctGatherType": "jobacct_gather/none",
    }  # fmt: skip
    lines = [f"{name}={value}\n" for name, value in settings.items()]
    lines += [f"NodeName={host} NodeAddr=127.0.0.1 CPUs={os.cpu_count()} RealMemory=20000 State=UNKNOWN\n"]
    lines += [f"PartitionName=short Nodes={host} Default=YES MaxTime=INFINITE State=UP\n"]
    (home / "slurm.conf").write_text("".join(lines))
    key, munge = home / "munge.key", home / "munge.sock"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    conf = {"SLURM_CONF": str(home / "slurm.conf")}
    with (home / "slurm.conf").open("a") as file:
        file.write(f"AuthInfo=socket={munge}\n")
    home.chmod(0o755)
    options = [f"--key-file={key}", f"--socket={munge}", f"--pid-file={home}/munged.pid", "--force"]
    options += [f"--log-file={home}/munged.log", f"--seed-file={home}/munged.seed", "--foreground"]
    with (
        daemon("munged", *options, log=home / "munged.out"),
        daemon("slurmctld", "-D", log=home / "slurmctld.log", **conf),
        daemon("slurmd", "-D", "-N", host, log=home / "slurmd.log", **conf),
    ):

        def idle() -> bool:
            asked = ["sinfo", "--noheader", "--format=%t"]
            done = subprocess.run(
                asked, env={**os.environ, **conf}, capture_output=True, text=True, check=False
            )
            return done.stdout.strip() == "idle"

        wait(idle, 60, "Slurm's node is idle")
        yield conf


def sbatch(
    cluster: Cluster, slurm: Mapping[str, str], file: str, **more: str
) -> subprocess.CompletedProcess[str]:
    command = ["sbatch", "--wait", "--output=job.log", cluster.bundle / "jobs" / file]
    archive = str(cluster.bundle / "image.tar")
    return ended(command, cluster.variables(**slurm, VERLOCK_ARCHIVE=archive, **more), cluster.home)


def test_slurm_runs_the_digest_and_brings_back_record_and_exit_code(
    cluster: Cluster, slurm: Mapping[str, str], record_property: Record
) -> None:
    cluster.hand_off("--queue", "short", steps=2)
    done = sbatch(cluster, slurm, "slurm-docker.sbatch")
    log = (cluster.home / "job.log").read_text()
    assert done.returncode == 0, done.stderr + log[-3000:]
    assert "training ended with exit code 0" in log
    assert cluster.record()["status"] == "passed"
    assert steps_of(cluster.record()) == [1, 2]
    record_property("seconds", cluster.record()["seconds"])


def test_apptainer_runs_the_archive_under_slurm(
    cluster: Cluster, slurm: Mapping[str, str], record_property: Record
) -> None:
    """The program is sid's, in a root of its own; the .sif is made from the bundle's archive."""
    made = ended([root() / ".ci" / "apptainer"], os.environ)
    assert made.returncode == 0, made.stderr
    cluster.hand_off("--queue", "short", steps=2)
    # As on a cluster: who runs the job owns the folder. Here that is a root without privileges.
    os.chown(cluster.home / "runs", os.geteuid(), os.getegid())
    done = sbatch(cluster, slurm, "slurm-apptainer.sbatch", VERLOCK_APPTAINER=made.stdout.strip())
    log = (cluster.home / "job.log").read_text()
    assert done.returncode == 0, done.stderr + log[-3000:]
    assert cluster.record()["status"] == "passed"
    assert steps_of(cluster.record()) == [1, 2]
    record_property("seconds", cluster.record()["seconds"])


def test_slurm_brings_back_the_exit_code_of_a_failure(
    cluster: Cluster, slurm: Mapping[str, str], record_property: Record
) -> None:
    cluster.hand_off("--queue", "short", "--set", "data.train_files=/data/nowhere.parquet", steps=2)
    done = sbatch(cluster, slurm, "slurm-docker.sbatch")
    log = (cluster.home / "job.log").read_text()
    assert done.returncode == 22, log[-3000:]
    record = cluster.record()
    assert (record["status"], record["exit_code"]) == ("failed", 22)
    assert "nowhere.parquet" in record["failure"]["cause"]
    record_property("cause", record["failure"]["cause"][:500])
