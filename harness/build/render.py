"""``verlock render``: the Dockerfile and the overrides of a profile, from templates under ``docker/``."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path

import jinja2

from harness.build import files
from harness.build.lock import folder
from harness.errors import ProfileError
from harness.profiles import LockTarget, Profile, load, names, releases, root

# What a profile is rendered to, and its template under docker/.
TEMPLATES = {
    "Dockerfile": "Dockerfile.j2",
    "Dockerfile.dockerignore": "Dockerfile.dockerignore.j2",
    "overrides.yaml": "overrides.yaml.j2",
}
# The rooms that stay on the host: an image holds only what runs inside it.
HOST_ROOMS = ("build", "handoff")


def render(profile: Profile) -> dict[str, str]:
    """File name to text. Pure but for reading the templates."""
    environment = _environment(root() / "docker")
    target = container_target(profile)
    context = {"profile": profile, "target": target, "torch": target.torch, "host_rooms": HOST_ROOMS}
    try:
        return {name: environment.get_template(file).render(context) for name, file in TEMPLATES.items()}
    except jinja2.TemplateSyntaxError as error:
        raise ProfileError(
            f"the template is not valid: {error.message}", where=f"docker/{error.name}:{error.lineno}"
        ) from None
    except jinja2.UndefinedError as error:
        raise ProfileError(
            f"a template names what the profile does not have: {error.message}", where="docker/"
        ) from None


def publish(given: Sequence[str], *, check: bool) -> list[Path]:
    """Render the named profiles, or all; return the files that changed.

    :raises ProfileError: for another verl than the profile's own, which no image holds.
    """
    profiles = list(map(load, given or names()))
    for variant in filter(releases.is_variant, profiles):
        raise ProfileError(
            f"{variant.name} has a lock, and no image or overrides",
            why="images hold the verl of the profile itself; other releases run from their lock",
            todo=f"climb with it: verlock climb --verl {variant.software.verl}",
        )
    made = {folder(profile) / name: text for profile in profiles for name, text in render(profile).items()}
    return files.publish(made, check=check, command="verlock render")


def container_target(profile: Profile) -> LockTarget:
    """The lock that goes into the image: a Mac's container is Linux too."""
    machine = {"amd64": "x86_64", "arm64": "aarch64"}[profile.hardware.container_platform.partition("/")[2]]
    return profile.target("linux", machine)


def _environment(templates: Path) -> jinja2.Environment:
    environment = jinja2.Environment(  # noqa: S701 - Dockerfiles and YAML: HTML's escapes would break them
        loader=jinja2.FileSystemLoader(templates),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["quoted"] = _quoted
    environment.filters["comment"] = _comment
    return environment


def _quoted(value: object) -> str:
    """JSON, which YAML reads and a Dockerfile's LABEL takes."""
    return json.dumps(value, ensure_ascii=False)


def _comment(text: str) -> str:
    lines = textwrap.wrap(text, width=100, break_long_words=False, break_on_hyphens=False)
    return "\n".join(f"  # {line}" for line in lines)
