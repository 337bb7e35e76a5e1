"""``verlock handoff PROFILE``: everything that a cluster needs, in one folder, whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from harness.build import base_lock, files, lockfile
from harness.build.image import built as image
from harness.build.image.archive import sha256
from harness.build.image.make import ARCHIVE, RECORD, alone, place
from harness.build.lock import folder as locks
from harness.build.render import container_target
from harness.console import Output
from harness.errors import HandoffError
from harness.evidence.model import Image, Run
from harness.evidence.model import load as load_run
from harness.handoff import asked, contents, jobs, proof, registry, sbom, standalone, transfer, verify
from harness.handoff.manifest import Archive, ImageFacts, Manifest, Proof
from harness.handoff.overrides import for_job
from harness.handoff.parameters import Asked, Identity, Parameters, gather
from harness.handoff.reference import Reference
from harness.handoff.sign import cosign, sign
from harness.profiles import Profile, load, root

FOLDER = "handoff"
_VERSIONS = ("verl", "torch", "ray", "transformers", "tensordict", "vllm")


class Built(BaseModel):
    """``image.json``, as far as a hand-off reads it."""

    model_config = ConfigDict(frozen=True)

    name: str
    platform: str
    manifest: str
    config: str
    archive: Archive
    base: dict[str, str]
    fingerprint: str
    revision: str

    @property
    def image(self) -> Image:
        """The two digests."""
        return Image(manifest=self.manifest, config=self.config)


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is to be bundled, and how."""

    asked: Asked = field(default_factory=Asked)
    runs: Path | None = None
    """Where run records are looked for; the repository's own folder if None."""
    repository: str | None = None
    """Where the cluster finds the image; the archive's own name if None."""
    push: bool = False
    """Push it there, and bundle the reference instead of the archive."""
    unproven: bool = False
    key: Path | None = None
    run: Path | None = None
    """A local run, whose overrides are carried over where they hold."""


def bundle(given: str, order: Order, output: Output) -> tuple[Path, Manifest]:
    """Make ``dist/PROFILE/handoff``, and return it with its manifest.

    Raises:
        EnvironmentDiffersError: the image was built from something else than this checkout holds now.
        HandoffError: no image, one that is not what its record or the locks say, or one without a run that
            proves it (unless ``order.unproven``).
    """
    profile = load(given)
    home = place(profile)
    with alone(home):
        built = _built(profile, home / RECORD)
        image.check(image.read(profile))
        archive = home / built.archive.file
        run, verdict = _judge(profile, built, order)
        config = asked.config_of(_runs(order) / run.id) if run else None
        asked.judge(profile, order.asked, config)
        if config is None and order.asked.overrides:
            output.line(
                "the keys of --set are not checked: no run that proves the image has its configuration"
            )
        repository = order.repository or built.name.partition(":")[0]
        reference = Reference.of(repository, built.manifest)
        if order.push:
            registry.named(reference)
        if order.key is not None:
            cosign()  # missing: said before gigabytes are read
        _whole(archive, built)
        with output.busy(f"reading {files.shown(archive)}"):
            found = contents.read(archive)
        base = {package.name: package for package in base_lock.read(locks(profile) / base_lock.FILE)}
        lock = locks(profile) / container_target(profile).file
        pins = lockfile.parse(lock.read_text(encoding="utf-8"), file=files.shown(lock))
        contents.compare(found, pins, base, where=files.shown(archive))
        versions = {"python": profile.software.python} | {n: pins[n].version for n in _VERSIONS if n in pins}
        carried = _carried(profile, order.run)
        parameters = gather(
            profile,
            order.asked,
            identity=Identity(
                reference=reference,
                config=built.config,
                fingerprint=built.fingerprint,
                archive=None if order.push else built.archive.file,
            ),
            proof=verdict,
            ray=versions["ray"],
            carried=carried.carried if carried else {},
        )
        if order.push:
            registry.push(archive, reference, profile.short, output)
        manifest = _manifest(profile, built, order, reference, verdict, run, versions, parameters)
        texts = {
            **{f"{jobs.FOLDER}/{name}": text for name, text in jobs.render(parameters).items()},
            manifest.sbom: sbom.text(profile, built.manifest, found, base),
            verify.MANIFEST: manifest.text(),
            "verify.py": standalone.text(),
            **({proof.RECORD: run.json_text()} if run else {}),
            **({transfer.FILE: carried.text()} if carried else {}),
        }
        return _lay_out(home, archive, texts, order, output), manifest


def _built(profile: Profile, path: Path) -> Built:
    try:
        return Built.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        why = "there is no image"
    except ValidationError as error:
        why = f"its record cannot be read: {error.errors()[0]['msg']}"
    raise HandoffError(
        f"{profile.name} has nothing to hand on",
        where=files.shown(path),
        why=why,
        todo=f"build it: nox -s build-{profile.short}",
    )


def _whole(archive: Path, built: Built) -> None:
    actual = sha256(archive) if archive.is_file() else "missing"
    if actual != built.archive.sha256:
        raise HandoffError(
            "the archive is not the one that was built",
            where=files.shown(archive),
            why=f"its sha256 is {actual}, {RECORD} says {built.archive.sha256}",
            todo="build it again",
        )


def _carried(profile: Profile, path: Path | None) -> transfer.Transfer | None:
    """What a local run's overrides are worth here."""
    if path is None:
        return None
    run = load_run(path)
    size = profile.handoff
    ranks = size.gpus_per_node or 1
    job = for_job(profile, name=f"verlock-{profile.short}", nodes=size.nodes, ranks=ranks, asked={})
    return transfer.transfer(run, load(run.profile), profile, job)


def _judge(profile: Profile, built: Built, order: Order) -> tuple[Run | None, Proof]:
    try:
        run = proof.find(profile, built.image, built.fingerprint, _runs(order))
    except HandoffError as error:
        if not order.unproven:
            raise
        return None, proof.unproven(error.problems[0].why or error.problems[0].what)
    return run, proof.proven(profile, run)


def _runs(order: Order) -> Path:
    return order.runs or root() / "runs"


def _manifest(
    profile: Profile,
    built: Built,
    order: Order,
    reference: Reference,
    verdict: Proof,
    run: Run | None,
    versions: dict[str, str],
    parameters: Parameters,
) -> Manifest:
    details = {} if run is None else next((r.details for r in run.rungs if r.name == "env"), {})
    patches = details.get("patches")
    return Manifest(
        profile=profile.name,
        summary=profile.summary,
        fingerprint=built.fingerprint,
        image=ImageFacts(
            name=built.name,
            platform=built.platform,
            manifest=built.manifest,
            config=built.config,
            base=built.base["digest"],
            archive=None if order.push else built.archive,
            reference=str(reference),
            pushed=order.push,
            revision=built.revision,
        ),
        versions=versions,
        patches={str(k): str(v) for k, v in patches.items()} if isinstance(patches, dict) else {},
        proof=verdict,
        sbom=sbom.FILE,
        jobs=tuple(f"{jobs.FOLDER}/{name}" for name in jobs.FILES),
        parameters=parameters.model_dump(
            mode="json", include=set(Asked.model_fields) | {"overrides", "variables"}
        ),
    )


def _lay_out(home: Path, archive: Path, texts: Mapping[str, str], order: Order, output: Output) -> Path:
    """Write beside, check with the receiver's own check, then change places with the last bundle."""
    with files.disk_errors(home):
        new = Path(tempfile.mkdtemp(dir=home, prefix=f".{FOLDER}."))
        try:
            new.chmod(0o755)
            for name, text in texts.items():
                files.write(new / name, text)
                if name.endswith((".sh", ".sbatch", ".py")):
                    (new / name).chmod(0o755)
            if not order.push:
                _link(archive, new / ARCHIVE)
            with output.busy("computing and checking the sums"):
                sums = {
                    path.relative_to(new).as_posix(): sha256(path)
                    for path in new.rglob("*")
                    if path.is_file()
                }
                files.write(new / verify.SUMS, "".join(f"{sums[name]}  {name}\n" for name in sorted(sums)))
                if order.key is not None:
                    sign(new, order.key)
                found = verify.check(new)
            if found:
                raise HandoffError(*found)
            target = home / FOLDER
            mine = _foreign(target) if target.exists() else []
            old = home / (f"{FOLDER}.{datetime.now(UTC):%Y%m%d-%H%M%S}" if mine else f".{FOLDER}.old")
            shutil.rmtree(home / f".{FOLDER}.old", ignore_errors=True)
            if target.exists():
                target.rename(old)
            new.rename(target)
            if mine:
                said = ", ".join(mine[:5]) + (" and more" if len(mine) > 5 else "")
                output.line(f"the last bundle has files of yours ({said}) and is kept: {files.shown(old)}")
            else:
                shutil.rmtree(old, ignore_errors=True)
            return target
        finally:
            shutil.rmtree(new, ignore_errors=True)


def _foreign(folder: Path) -> list[str]:
    """Files that the bundle did not have when it was made, or that were changed since; not its archive."""
    sums, own = verify.listed(folder)[0], {verify.SUMS, verify.SIGNATURE, verify.KEY, ARCHIVE}
    names = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    return [
        name
        for name, path in names.items()
        if name not in own
        and (path.is_symlink() or not path.is_dir())
        and (name not in sums or path.is_symlink() or not path.is_file() or sha256(path) != sums[name])
    ]


def _link(source: Path, target: Path) -> None:
    """The archive again without its gigabytes; a rebuild puts a new file in its place and leaves this one."""
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copyfile(source, target)
