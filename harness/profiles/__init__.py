"""Profiles: what a machine can do, which software is pinned for it, and what must never happen on it.

Pure: reads YAML, imports none of the other rooms and nothing heavy.
"""

from harness.profiles import releases
from harness.profiles.load import load, names, root
from harness.profiles.model import Profile
from harness.profiles.software import LockTarget

__all__ = ["LockTarget", "Profile", "load", "names", "releases", "root"]
