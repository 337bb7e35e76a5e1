"""``--log-level``: lets verl's loggers be heard.

verl sets their level by VERL_LOGGING_LEVEL and gives them no handler, so that Python prints only warnings.
"""

from __future__ import annotations

import logging
import os
import sys

from harness.adapt.settings import LOG_LEVEL

LEVELS = ("debug", "info", "warning", "error")
_FORMAT = "%(levelname)s %(name)s: %(message)s"


def speak() -> None:
    """Give verl's loggers a handler on standard error, where a level was asked for."""
    level = os.environ.get(LOG_LEVEL, "")
    logger = logging.getLogger("verl")
    if level.lower() not in LEVELS or logger.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(_FORMAT))
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False
