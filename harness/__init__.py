"""verlock: pinned, provable environments for verl, and the harness that proves them."""

__version__ = "0.1.0"
