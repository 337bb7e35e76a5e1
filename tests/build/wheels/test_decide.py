"""The decision, on facts: which code runs where, which share of a library must, and what the floors say."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import yaml

from harness.build.audit import decide, limits
from harness.build.audit.fatbin import Code
from harness.build.audit.finding import Finding
from harness.build.audit.gather import Package
from harness.build.audit.library import Library
from harness.errors import AuditError
from harness.profiles import Profile, load

P40, A100 = load("p40-sm61"), load("a100")
LIMITS = limits.load()
OLD = "sm_50 sm_60 sm_70 sm_80 sm_90"
NEW = "sm_70 sm_75 sm_80 sm_86 sm_90 sm_100 sm_120"


def code(word: str) -> Code:
    kind, _, rest = word.partition("_")
    kinds: dict[str, Literal["ptx", "sass", "other"]] = {"compute": "ptx", "sm": "sass", "ir": "other"}
    digits = rest.rstrip("af")
    return Code(int(digits), kinds[kind], rest[len(digits) :])  # type: ignore[arg-type]


def lib(name: str, *, complete: bool = True, **containers: int) -> Library:
    held = {frozenset(map(code, words.split("__"))): count for words, count in containers.items()}
    return Library(name=name, containers=held, complete=complete)


def torch(version: str, cuda: str, linalg: str = OLD, built_for: str = "") -> Package:
    libraries = (
        Library(name="torch/lib/libtorch_cuda.so", containers={frozenset(map(code, cuda.split())): 393}),
        Library(
            name="torch/lib/libtorch_cuda_linalg.so", containers={frozenset(map(code, linalg.split())): 107}
        ),
    )
    return Package(
        name="torch", version=version, origin="x", libraries=libraries, built_for=tuple(built_for.split())
    )


def severities(findings: tuple[Finding, ...]) -> dict[str, str]:
    return {one.what.split(" ")[0].rstrip(":"): one.severity for one in findings}


def judge(*packages: Package, profile: Profile = P40, **locked: str) -> tuple[Finding, ...]:
    return decide.evaluate(
        packages, {name.replace("_", "-"): v for name, v in locked.items()}, profile, LIMITS
    )


@pytest.mark.parametrize(
    ("word", "card", "runs"),
    [
        ("sm_60", 61, True),
        ("sm_61", 61, True),
        ("sm_62", 61, False),
        ("sm_52", 61, False),
        ("sm_70", 61, False),
        ("compute_50", 61, True),
        ("compute_61", 61, True),
        ("compute_70", 61, False),
        ("ir_50", 61, False),
        ("sm_90a", 90, True),
        ("sm_100a", 103, False),
        ("sm_100f", 103, True),
        ("sm_100f", 120, False),
        ("compute_90a", 90, True),
        ("compute_90a", 100, False),
        ("compute_100f", 103, True),
        ("compute_100f", 110, False),
        ("sm_80", 86, True),
        ("sm_100", 120, False),
    ],
)
def test_what_runs_where(word: str, card: int, runs: bool) -> None:
    assert code(word).runs_on(card) is runs
    assert str(code(word)) == word


def test_torch_2_7_1_passes_on_a_p40() -> None:
    assert {one.severity for one in judge(torch("2.7.1", OLD))} == {"runs"}


def test_torch_2_8_0_is_refused_though_its_linalg_library_runs() -> None:
    findings = judge(torch("2.8.0", NEW, built_for=NEW))
    assert severities(findings) == {
        "libtorch_cuda.so": "refused",
        "libtorch_cuda_linalg.so": "runs",
        "its": "refused",
    }
    refused = findings[0]
    assert (refused.runs, refused.of) == (0, 393)
    assert "no code for sm_61 (0 of 393 containers)" in refused.what
    assert "torch 2.7.1 is the last release" in (refused.todo or "")
    assert "sm_70" in (refused.why or "")


def test_a_2_8_0_built_for_cuda_12_6_passes() -> None:
    built = "sm_50 sm_60 sm_70 sm_80 sm_90"
    assert {one.severity for one in judge(torch("2.8.0+cu126", built, built, built))} == {"runs"}


def test_a_few_old_containers_do_not_carry_a_library() -> None:
    package = Package(
        name="torch",
        version="9",
        origin="x",
        libraries=(lib("libtorch_cuda.so", sm_60__sm_70=3, sm_70__sm_80=390),),
    )
    (finding,) = judge(package)
    assert (finding.severity, finding.runs, finding.of) == ("refused", 3, 393)
    assert "too little code" in finding.what


def test_a_build_for_cpus_is_refused() -> None:
    (finding,) = judge(Package(name="torch", version="2.7.1", origin="x", libraries=()))
    assert (finding.severity, finding.what) == ("refused", "holds no device code at all")


@pytest.mark.parametrize(
    ("containers", "card", "share"),
    [
        ({"sm_60__sm_70": 3, "sm_70__sm_80": 1}, 61, (3, 4)),
        # cuFFT: one container a kernel and architecture; they are alternatives of one another.
        ({"ir_50": 11099, "compute_50": 2968, "compute_70": 4229, "sm_90": 393}, 61, (2968, 4229)),
        ({"ir_50": 5}, 61, (0, 0)),
        ({"sm_60": 3, "sm_80": 390}, 61, (3, 390)),
        ({"sm_75__sm_80": 8, "sm_90a": 1}, 80, (8, 9)),
    ],
)
def test_share(containers: dict[str, int], card: int, share: tuple[int, int]) -> None:
    assert decide.share(lib("x", **containers).containers, card) == share


def test_libraries_that_pick_their_kernels_need_some() -> None:
    cudnn = Package(
        name="nvidia-cudnn-cu12",
        version="9",
        origin="x",
        libraries=(
            lib("libcudnn_engines_runtime_compiled.so.9", sm_60__sm_70=6, sm_70__sm_80=20),
            lib("libcudnn_a.so.9", complete=False, sm_70__sm_80=4),
            lib("libcudnn_b.so.9", sm_70__sm_80=4),
        ),
    )
    assert [one.severity for one in judge(cudnn)] == ["runs", "unknown", "refused"]


def test_what_nothing_uses_is_named_and_no_fault() -> None:
    unused = Package(
        name="nvidia-cusparselt-cu12",
        version="0.6.3",
        origin="x",
        libraries=(lib("libcusparseLt.so.0", sm_80__sm_90a=9),),
    )
    (finding,) = judge(unused)
    assert finding.severity == "unused"
    assert "verl uses none" in (finding.why or "")
    stranger = Package(name="other", version="1", origin="x", libraries=(lib("other.so", sm_80=1),))
    assert judge(stranger)[0].severity == "unused"


def test_an_empty_sample_decides_nothing() -> None:
    blas = Package(
        name="nvidia-cublas", version="13", origin="x", libraries=(lib("libcublasLt.so", complete=False),)
    )
    assert judge(blas, profile=A100)[0].severity == "unknown"


def test_jit_is_said() -> None:
    fft = Package(
        name="nvidia-cufft-cu12", version="11", origin="x", libraries=(lib("libcufft.so.11", compute_50=1),)
    )
    assert "compiled by the driver" in judge(fft)[0].what


@pytest.mark.parametrize(
    ("profile", "locked", "severity"),
    [
        (P40, {"triton": "3.3.1"}, "unused"),
        (A100, {"triton": "3.6.0"}, None),
        (P40, {"vllm": "0.10.1.1"}, "unused"),
        (P40, {"flash-attn": "2.8"}, "unused"),
        (P40, {"nvidia-cuda-runtime-cu12": "12.6.77"}, None),
        (P40, {"nvidia-cuda-runtime": "13.0.96"}, "refused"),
        (A100, {"nvidia-cuda-runtime": "13.0.96"}, None),
    ],
)
def test_floors(profile: Profile, locked: dict[str, str], severity: str | None) -> None:
    found = {
        one.severity for one in judge(profile=profile, **{k.replace("-", "_"): v for k, v in locked.items()})
    }
    assert found == ({severity} if severity else set())


def changed(profile: Profile, **hardware: Any) -> Profile:
    return profile.model_copy(update={"hardware": profile.hardware.model_copy(update=hardware)})


def test_a_profile_that_uses_triton_below_its_floor_is_refused() -> None:
    volta_less = changed(A100, compute_capability="6.1", driver=P40.hardware.driver)
    found = judge(profile=volta_less, triton="3.6.0", vllm="0.24.0")
    assert [(one.severity, one.subject) for one in found] == [
        ("refused", "triton 3.6.0"),
        ("refused", "vllm 0.24.0"),
    ]
    turing_less = changed(A100, compute_capability="7.0", driver=P40.hardware.driver)
    assert [one.subject for one in judge(profile=turing_less, vllm="0.24.0")] == ["vllm 0.24.0"]
    assert not judge(profile=turing_less, vllm="0.10.1.1")


def test_drivers() -> None:
    assert P40.hardware.driver is not None
    open_end = changed(P40, driver=P40.hardware.driver.model_copy(update={"ceiling": None}))
    (finding,) = judge(profile=open_end)
    assert (finding.severity, finding.what) == ("refused", "the last branch that knows sm_61 is 580")
    assert A100.hardware.driver is not None
    old = changed(A100, driver=A100.hardware.driver.model_copy(update={"floor": "550.54"}))
    (finding,) = judge(profile=old, nvidia_cuda_runtime="13.0.96")
    assert "needs driver 580.65.06" in finding.what


def test_each_package_of_the_limits_says_why() -> None:
    assert all(entry.reason for entry in LIMITS.packages)
    assert all(one.evidence for one in (*LIMITS.floors, *LIMITS.cuda, *LIMITS.drivers, *LIMITS.last_good))


def test_a_wrong_limits_file_names_each_place(tmp_path: Any) -> None:
    document = yaml.safe_load(limits.FILE.read_text(encoding="utf-8"))
    document["packages"][0]["used_by"] = "sometimes"
    del document["floors"][0]["evidence"]
    path = tmp_path / "limits.yaml"
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(AuditError) as caught:
        limits.load(path)
    assert [problem.where for problem in caught.value.problems] == [
        "limits.yaml:packages.0.used_by",
        "limits.yaml:floors.0.evidence",
    ]
