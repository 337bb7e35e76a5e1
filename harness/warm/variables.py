"""Environment variables that are read once, at import: a child forked after that cannot change them."""

from __future__ import annotations

from collections.abc import Mapping

# Thread pools (libgomp, OpenBLAS and MKL read theirs when they are loaded), the loader, the allocator,
# the interpreter (a hash seed), and what verl reads in module bodies.
_PREFIXES = ("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "LD_", "MALLOC_", "PYTHON", "ATEN_")
_NAMES = frozenset(
    {
        "VERL_USE_EXTERNAL_MODULES",
        "VERL_USE_EXTERNAL_PLUGINS",
        "VERL_USE_MODELSCOPE",
        "VERL_PLATFORM",
        "VERL_ENGINE_DEVICE",
        "VERL_ENGINE_VENDOR",
        "VERL_LOGGING_LEVEL",
        "VERLOCK_DEVICE",
        "VERLOCK_ATTENTION",
        "VERLOCK_WITHOUT_PATCHES",
        "HF_HUB_OFFLINE",
        "HF_HOME",
        "TRANSFORMERS_OFFLINE",
        "TLLM_DISABLE_NVLS_MNNVL",
        "FLASH_ATTENTION_DETERMINISTIC",
    }
)


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str | None]:
    """What the imports set (``None``: took away) in the environment, as torch, Ray and verl do."""
    return {
        name: after.get(name) for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    }


def after_imports(
    wanted: Mapping[str, str], before: Mapping[str, str], changes: Mapping[str, str | None]
) -> dict[str, str]:
    """A child's environment as its own imports would have left it.

    An import may set a variable always or only where there is none: a value that the server did not start
    with is the child's own, and stays.
    """
    out = dict(wanted)
    for name, value in changes.items():
        if wanted.get(name) == before.get(name):
            if value is None:
                out.pop(name, None)
            else:
                out[name] = value
    return out


def differing(server: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """The names of such variables that a child wants otherwise than its server has them."""
    return sorted(
        name
        for name in server.keys() | wanted.keys()
        if (name in _NAMES or name.startswith(_PREFIXES))
        and (server.get(name) or "") != (wanted.get(name) or "")
    )
