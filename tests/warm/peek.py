"""What a forked child has of verl, for test_watch: run by ``-m peek``."""

from __future__ import annotations

import os
import time

from verl.trainer.ppo import core_algos

if __name__ == "__main__":
    print(core_algos.PEEK, os.getppid(), flush=True)
    if "PEEK_SECONDS" in os.environ:
        time.sleep(float(os.environ["PEEK_SECONDS"]))
