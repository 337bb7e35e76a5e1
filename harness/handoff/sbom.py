"""The bill of materials: CycloneDX, from what the archive holds and what the locks say of it.

The same image gives the same bytes: its serial number is made from its digest, and its time is the
image's own.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime

from cyclonedx.contrib.license.exceptions import LicenseFactoryException
from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from harness.build.base_lock import Package
from harness.handoff.contents import Contents, Distribution
from harness.profiles import Profile

FILE = "sbom.cdx.json"


def text(profile: Profile, digest: str, contents: Contents, base: Mapping[str, Package]) -> str:
    """The document, indented. Pure.

    Args:
        profile: whose image.
        digest: the image's manifest digest, ``sha256:...``.
        contents: what the archive holds.
        base: the Debian packages of the lock by name, for the digests of their files.
    """
    image = Component(
        type=ComponentType.CONTAINER,
        name=f"verlock-{profile.short}",
        version=digest,
        bom_ref="image",
        description=profile.summary,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest.partition(":")[2])],
    )
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"verlock:{digest}"))
    bom.metadata.timestamp = datetime.fromtimestamp(0, UTC)
    bom.metadata.component = image
    release = profile.image.release
    components = [
        *(_python(distribution) for distribution in contents.distributions),
        *(_debian(package, base.get(package[0]), release) for package in contents.packages),
    ]
    bom.components.update(components)
    bom.register_dependency(image, components)
    return str(JsonV1Dot6(bom).output_as_string(indent=2)) + "\n"


def _python(distribution: Distribution) -> Component:
    url = PackageURL(type="pypi", name=distribution.name, version=distribution.version)
    return Component(
        type=ComponentType.LIBRARY,
        name=distribution.name,
        version=distribution.version,
        purl=url,
        bom_ref=url.to_string(),
        licenses=_licences(distribution),
    )


def _licences(distribution: Distribution) -> list[License]:
    factory = LicenseFactory()
    if distribution.expression:
        try:
            return [factory.make_with_expression(distribution.expression)]
        except LicenseFactoryException:  # a metadata field that says it is SPDX, and is not
            return [factory.make_with_name(distribution.expression)]
    return [factory.make_with_name(distribution.licence)] if distribution.licence else []


def _debian(package: tuple[str, str, str], locked: Package | None, release: str) -> Component:
    name, version, machine = package
    qualifiers = {"arch": machine, "distro": release}
    url = PackageURL(type="deb", namespace="debian", name=name, version=version, qualifiers=qualifiers)
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=locked.sha256)] if locked else []
    return Component(
        type=ComponentType.LIBRARY,
        name=name,
        version=version,
        purl=url,
        bom_ref=url.to_string(),
        hashes=hashes,
    )
