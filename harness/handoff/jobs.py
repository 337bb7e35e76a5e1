"""Job files, rendered from templates: pure, and refused where one would start something else."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Final

import jinja2

from harness.errors import HandoffError
from harness.handoff import rayjob
from harness.handoff.parameters import Parameters
from harness.handoff.words import shell

FOLDER: Final = "jobs"
RAYJOB: Final = "rayjob.yaml"
# In the order of the README: from one machine to a cluster.
FILES: Final = (
    "docker-run.sh",
    "ray-submit.sh",
    RAYJOB,
    "slurm-apptainer.sbatch",
    "slurm-docker.sbatch",
    "slurm-pyxis.sbatch",
)


def render(job: Parameters) -> dict[str, str]:
    """File name (below ``jobs/``) to text.

    Raises:
        HandoffError: a template names an image otherwise than by digest, or the RayJob is not one.
    """
    environment = _environment()
    context = {
        "job": {
            **{name: getattr(job, name) for name in Parameters.model_fields},
            "words": shell(job.overrides),
        }
    }
    made = {file: environment.get_template(f"{file}.j2").render(context) for file in FILES}
    repository = job.image.partition("@")[0]
    # enroot before 4 spells a digest as a tag.
    tagged = re.compile(rf"{re.escape(repository.rpartition('/')[2])}:(?!sha256:)[A-Za-z0-9_]")
    for file, text in made.items():
        if job.manifest not in text or tagged.search(text):
            raise HandoffError(
                f"{file} would name an image by a tag, or not at all",
                where=f"harness/handoff/templates/{file}.j2",
                why="a tag can be moved to another image",
                todo="use job.image",
            )
    rayjob.check(made[RAYJOB], ray=job.ray, image=job.image)
    return made


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(  # noqa: S701 - scripts and YAML: HTML's escapes would break them
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["shell"] = lambda value: shlex.quote(str(value))
    environment.filters["quoted"] = lambda value: json.dumps(value, ensure_ascii=False)
    environment.filters["tojson_sorted"] = lambda value: json.dumps(value, sort_keys=True)
    return environment
