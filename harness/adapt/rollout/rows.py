"""How many rows a batch of the ``hf`` rollout has at most. Imports nothing: the memory plan needs it too."""

MOST_ROWS = 64
"""vLLM's default of 1024 sequences would make each fixed-shape batch 1024 rows."""
