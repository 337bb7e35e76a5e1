"""One way of converting or checking a data file, in a process of its own: prints its seconds and its memory.

pandas does the same work as it is usually written, on the whole file at once.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from harness.data import convert, data_check, gsm8k


def ours_convert(source: Path, target: Path) -> int:
    return convert.convert(source, target, convert.Wanted(), force=True).rows


def ours_check(source: Path, _target: Path) -> int:
    return data_check.check(source).rows


def pandas_convert(source: Path, target: Path) -> int:
    import pandas as pd

    frame = pd.read_json(source, lines=True)
    assert not frame["question"].isna().any()
    truth = frame["answer"].str.extract(r"####\s*(-?[0-9][0-9.,]*)", expand=False).str.replace(",", "")
    assert not truth.isna().any()

    def row(index: int, question: str, answer: str, final: str) -> dict[str, Any]:
        return {
            "data_source": gsm8k.DATA_SOURCE,
            "prompt": [{"role": "user", "content": f"{question} {gsm8k.INSTRUCTION}"}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": final},
            "extra_info": {"split": "train", "index": index, "question": question, "answer": answer},
        }

    rows = map(row, range(len(frame)), frame["question"], frame["answer"], truth)
    pd.DataFrame(list(rows)).to_parquet(target)
    return len(frame)


def pandas_check(source: Path, _target: Path) -> int:
    import pandas as pd

    frame = pd.read_parquet(source)
    assert not frame[["prompt", "data_source", "reward_model"]].isna().any().any()
    assert frame["reward_model"].map(lambda model: bool(model["ground_truth"])).all()
    assert frame["prompt"].map(lambda messages: any(m["role"] == "user" for m in messages)).all()
    assert frame["prompt"].map(lambda messages: all(m["content"].strip() for m in messages)).all()
    frame["prompt"].map(
        lambda messages: tuple((m["role"], m["content"]) for m in messages)
    ).duplicated().sum()
    frame["data_source"].value_counts()
    return len(frame)


def main() -> None:
    what, source, target = sys.argv[1:]
    begin = time.perf_counter()
    rows = globals()[what](Path(source), Path(target))
    seconds = time.perf_counter() - begin
    print(f"rows/s: {rows / seconds}")
    print(f"peak MB: {peak() / 1024}")


def peak() -> int:
    """KiB at most in this program; ``ru_maxrss`` is no less than what its parent had when it forked."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1])


if __name__ == "__main__":
    main()
