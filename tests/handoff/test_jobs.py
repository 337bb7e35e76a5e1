"""Job files: as the golden ones, readable by who runs them, refused where one could start another image."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.errors import HandoffError
from harness.handoff import jobs, proof, rayjob
from harness.handoff.parameters import Asked, Identity, Parameters, gather
from harness.handoff.reference import Reference
from harness.handoff.words import bare, read
from harness.profiles import load, names

GOLDEN = Path(__file__).parent / "golden"
SCHEMA = Path(__file__).parents[3] / "shared" / "schemas" / "rayjob-v1.schema.json"
MANIFEST, CONFIG, FINGERPRINT = (f"sha256:{letter * 64}" for letter in "abc")
SCRIPTS = [name for name in jobs.FILES if name != jobs.RAYJOB]
RAY = "2.59.0"


def parameters(
    profile: str = "a100", repository: str = "registry.example:5000/ml/verlock", **asked: Any
) -> Parameters:
    identity = Identity(
        reference=Reference.of(repository, MANIFEST),
        config=CONFIG,
        fingerprint=FINGERPRINT,
        archive="image.tar",
    )
    given = {"nodes": 2, "queue": "gpu"} | asked
    return gather(load(profile), Asked(**given), identity=identity, proof=proof.unproven("no run"), ray=RAY)


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return jobs.render(parameters())


@pytest.mark.parametrize("file", jobs.FILES)
def test_job_files_are_the_golden_ones(made: dict[str, str], file: str) -> None:
    """Written anew with VERLOCK_GOLDEN=write; a change of a template is then seen in review."""
    if os.environ.get("VERLOCK_GOLDEN") == "write":
        (GOLDEN / file).write_text(made[file])
    assert made[file] == (GOLDEN / file).read_text()


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("name", names())
def test_scripts_pass_shellcheck(tmp_path: Path, name: str, nodes: int) -> None:
    shellcheck = Path(sysconfig.get_path("scripts")) / "shellcheck"
    rendered = jobs.render(parameters(name, nodes=nodes))
    for file in SCRIPTS:
        (tmp_path / file).write_text(rendered[file])
    done = subprocess.run([shellcheck, *SCRIPTS], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    (tmp_path / "planted.sh").write_text("#!/usr/bin/env bash\nrm -rf $folder\n")
    bad = subprocess.run(
        [shellcheck, "planted.sh"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "SC2086" in bad.stdout


@pytest.mark.parametrize("file", jobs.FILES)
def test_each_job_checks_every_node_first_and_then_trains_with_all_overrides(
    made: dict[str, str], file: str
) -> None:
    text = made[file]
    if file == "docker-run.sh":  # on several nodes its training is submitted by ray-submit.sh
        text = jobs.render(parameters(nodes=1))[file]
    assert "python -m harness train --profile a100" in text
    assert f"--expect {FINGERPRINT}" in text
    words = shlex.split(
        text.partition("python -m harness train")[2].partition("\n)")[0].partition("\n  sub")[0]
    )
    found = {bare(key): value for key, value in read(words).items()}
    for key, value in load("a100").overrides().items():
        if "ray_init" not in key and bare(key) not in {"trainer.nnodes", "trainer.n_gpus_per_node"}:
            assert found[bare(key)] == value or bare(key) == "trainer.resume_mode", key
    assert found["trainer.n_gpus_per_node"] == 8
    if file.startswith("slurm"):
        check = text.index('sh -c "$check"')
        assert check < text.index('"${train[@]}"')
        assert text.index("--to env") < check


@pytest.mark.parametrize("file", jobs.FILES)
def test_an_unproven_image_says_so_in_every_file(made: dict[str, str], file: str) -> None:
    assert made[file].count("UNPROVEN") >= 2


@pytest.mark.parametrize("file", jobs.FILES)
def test_each_file_carries_the_profiles_variables(made: dict[str, str], file: str) -> None:
    for name, value in load("a100").environment_variables().items():
        assert re.search(rf"{name}\b.*{re.escape(value)}", made[file]), name
    assert "VERL_USE_EXTERNAL_MODULES" in made[file]


def test_parameters_reach_the_files() -> None:
    asked = {
        "nodes": 3,
        "gpus_per_node": 4,
        "time_limit": "12:30:00",
        "queue": "long",
        "name": "my-job",
        "volumes": ("/data=/lustre/data", "/runs=pvc:scratch"),
        "overrides": ("actor_rollout_ref.actor.optim.lr=2e-6", "+trainer.new='a b'"),
    }
    files = jobs.render(parameters(**asked))
    slurm = files["slurm-docker.sbatch"]
    for line in (
        "--nodes=3",
        "--gpus-per-node=4",
        "--time=12:30:00",
        "--partition=long",
        "--job-name=my-job",
    ):
        assert f"#SBATCH {line}\n" in slurm
    assert "VERLOCK_DATA=${VERLOCK_DATA:-/lustre/data}" in slurm
    document = yaml.safe_load(files[jobs.RAYJOB])
    assert document["spec"]["activeDeadlineSeconds"] == 45000
    volumes = document["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["volumes"]
    by_name = {volume["name"]: volume for volume in volumes}
    assert by_name["data"]["hostPath"] == {"path": "/lustre/data"}
    assert by_name["runs"]["persistentVolumeClaim"] == {"claimName": "scratch"}
    for text in files.values():
        if "harness train" in text:
            assert "actor_rollout_ref.actor.optim.lr=2e-06" in text
            assert "/runs/my-job" in text


def closed() -> Any:
    import jsonschema

    if not SCHEMA.is_file():
        pytest.skip("KubeRay's schema is not in this checkout; the product's own model is tested above")
    return jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("name", names())
def test_the_rayjob_is_one_by_kuberays_own_schema(name: str, nodes: int) -> None:
    text = jobs.render(parameters(name, nodes=nodes))[jobs.RAYJOB]
    assert list(closed().iter_errors(yaml.safe_load(text))) == []


def test_head_workers_and_submitter_have_one_digest_and_the_locks_ray(made: dict[str, str]) -> None:
    job = rayjob.check(made[jobs.RAYJOB], ray=RAY, image=parameters().image)
    images = [container.image for pod in job.pods().values() for container in pod.containers]
    assert len(images) == 3
    assert set(images) == {parameters().image}
    assert job.spec.ray_cluster_spec.ray_version == RAY
    assert "pip" not in made[jobs.RAYJOB]


PLANTED: dict[str, tuple[Callable[[str], str], str]] = {
    "a typo": (lambda t: t.replace("rayVersion", "rayVersoin"), "rayVersoin"),
    "a typo deep below": (lambda t: t.replace("mountPath: /tmp", "mountpath: /tmp"), "mountpath"),
    "a wrong type": (lambda t: t.replace("replicas: 1", "replicas: one", 1), "replicas"),
    "a missing key": (lambda t: t.replace("  entrypoint: >-", "  ntrypoint: >-"), "entrypoint"),
    "a pip list": (
        lambda t: t.replace("  backoffLimit: 0", '  runtimeEnvYAML: "pip: [x]"'),
        "runtimeEnvYAML",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_refused_by_our_own_model(made: dict[str, str], name: str) -> None:
    plant, named = PLANTED[name]
    with pytest.raises(HandoffError) as caught:
        rayjob.check(plant(made[jobs.RAYJOB]), ray=RAY, image=parameters().image)
    assert named in str(caught.value)
    assert caught.value.exit_code == 35


@pytest.mark.parametrize("name", ["a typo", "a typo deep below", "a wrong type"])
def test_kuberays_schema_refuses_it_too(made: dict[str, str], name: str) -> None:
    assert list(closed().iter_errors(yaml.safe_load(PLANTED[name][0](made[jobs.RAYJOB]))))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("@" + MANIFEST, ":latest", "names no digest"),
        (MANIFEST, "sha256:" + "d" * 64, "is not the image that is handed on"),
        (f'rayVersion: "{RAY}"', 'rayVersion: "2.0.0"', "rayVersion is 2.0.0"),
    ],
)
def test_another_image_or_another_ray_is_refused(
    made: dict[str, str], old: str, new: str, message: str
) -> None:
    with pytest.raises(HandoffError, match=message):
        rayjob.check(made[jobs.RAYJOB].replace(old, new, 2), ray=RAY, image=parameters().image)


def test_a_template_with_a_bare_tag_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import jinja2

    real = jobs._environment()
    planted = {
        "docker-run.sh.j2": "docker run {{ job.image.partition('@')[0] }}:latest # {{ job.manifest }}\n"
    }
    both = jinja2.ChoiceLoader([jinja2.DictLoader(planted), real.loader])  # type: ignore[list-item]
    monkeypatch.setattr(jobs, "_environment", lambda: real.overlay(loader=both))
    with pytest.raises(HandoffError, match=r"docker-run\.sh would name an image by a tag"):
        jobs.render(parameters())


@pytest.fixture
def started(made: dict[str, str], tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Start docker-run.sh with an engine that only says what it was asked."""
    engine = tmp_path / "engine"
    engine.write_text('#!/bin/sh\nif [ "$1" = image ]; then exit 0; fi\necho "$@"\n')
    engine.chmod(0o755)
    (tmp_path / "jobs").mkdir()
    script = tmp_path / "jobs" / "docker-run.sh"
    script.write_text(made["docker-run.sh"])
    for name in ("data", "models", "runs"):
        (tmp_path / name).mkdir()

    def start(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", script, *words],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "VERLOCK_DOCKER": str(engine), **variables},
            capture_output=True,
            text=True,
            check=False,
        )

    return start


def test_the_script_starts_the_digest_with_the_volumes(started: Any) -> None:
    done = started("head")
    assert done.returncode == 0, done.stderr
    assert parameters().image in done.stdout
    assert ":/data:ro" in done.stdout
    assert "fingerprint --profile a100 --expect" in done.stdout.partition("ray start --head")[0]


@pytest.mark.parametrize(
    "image", ["verlock:cpu", f"verlock:cpu@{MANIFEST}", f"verlock@{CONFIG}", "registry.example/verlock"]
)
def test_the_script_refuses_another_image(started: Any, image: str) -> None:
    done = started("head", VERLOCK_IMAGE=image)
    assert done.returncode == 35
    assert "is refused" in done.stderr


def test_the_script_says_what_is_missing(started: Any, tmp_path: Path) -> None:
    (tmp_path / "data").rmdir()
    done = started("head")
    assert (done.returncode, "there is no folder ./data" in done.stderr) == (2, True)
    (tmp_path / "data").mkdir()
    assert started("train").returncode == 2  # for two nodes: head, worker, then submit
