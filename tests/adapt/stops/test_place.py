"""A place is found, or told not to be one; what is compiled does what the module does."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from harness.adapt.stops.place import Place, compiled, find
from harness.errors import OverrideError
from tests.adapt.stops.conftest import LINE, MODULE

CLASSES = '''class Base:
    def prepare(self):
        """Documented."""
        self.ready = True


class Worker(Base):
    """A worker."""

    limit = 3

    def __init__(self):
        """Documented."""
        self.made = 1

    async def update(self, batch):
        return batch


def inside():
    class Nested:
        def __init__(self):
            self.deep = 1
    return Nested
'''


@pytest.fixture
def verl(tmp_path: Path) -> Path:
    package = tmp_path / "site" / "verl"
    (package / "workers").mkdir(parents=True)
    (package / "workers" / "base.py").write_text(CLASSES)
    return package


@pytest.mark.parametrize(
    ("text", "line", "role", "rank"),
    [
        ("verl/workers/base.py:14", 14, "", ""),
        ("verl/workers/base.py:14@WorkerDict", 14, "WorkerDict", ""),
        ("Worker@WorkerDict:1", 14, "WorkerDict", "1"),
        ("Worker.update", 17, "", ""),
        ("Base", 4, "", ""),
        ("Nested", 23, "", ""),
    ],
)
def test_places_are_found(verl: Path, tmp_path: Path, text: str, line: int, role: str, rank: str) -> None:
    file = str((verl / "workers" / "base.py").resolve())
    assert find(text, "pdb", verl, here=tmp_path) == Place(
        file=file, line=line, role=role, rank=rank, tool="pdb"
    )


def test_a_file_of_the_user_is_found_from_where_he_is(verl: Path, module: Path) -> None:
    assert find(f"judge.py:{LINE}", "dump", verl, here=module.parent).file == str(module.resolve())
    assert find(f"{module}:{LINE}", "dump", verl, here=Path("/")).line == LINE


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nowhere.py:3", "no such file: nowhere.py"),
        ("verl/workers/base.py:x", "is no place"),
        ("Absent", "verl has no class Absent"),
        ("Worker.absent", "Worker has __init__, update"),
        ("verl/workers/base.py:9", "the nearest that do: 4, 7, 10, 12"),
        ("verl/workers/base.py:999", "no statement begins"),
    ],
)
def test_what_is_no_place_is_told(verl: Path, tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(OverrideError, match=said):
        find(text, "dump", verl, here=tmp_path)


def statements(source: str) -> list[int]:
    """Every line at which a statement begins that may have another before it."""
    tree = ast.parse(source)
    kept = {
        id(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "__future__"
    }
    kept |= {
        id(node.body[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and ast.get_docstring(node) is not None
    }
    return sorted({n.lineno for n in ast.walk(tree) if isinstance(n, ast.stmt) and id(n) not in kept})


@pytest.mark.parametrize("source", [MODULE, CLASSES], ids=["module", "classes"])
def test_a_call_before_any_statement_changes_nothing_else(source: str) -> None:
    """In every line that has a statement: same names, same results, same docstrings."""
    wanted: dict[str, object] = {}
    exec(compile(source, "x.py", "exec", dont_inherit=True), wanted)
    lines = statements(source)
    assert len(lines) > 8
    for line in lines:
        got: dict[str, object] = {}
        exec(compiled(source, "x.py", line), got)
        assert got.keys() == wanted.keys()
        assert got.get("__doc__") == wanted.get("__doc__")
        if "score" in got:
            assert [got["score"](a, "42") for a in ("42", "7", "")] == [1.0, 0.5, 0.0]  # type: ignore[operator]
    for line in set(range(1, len(source.splitlines()) + 1)) - set(lines):
        with pytest.raises(OverrideError):
            compiled(source, "x.py", line)
