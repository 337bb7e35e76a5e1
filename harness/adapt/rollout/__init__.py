"""The ``hf`` rollout (and its ``mock``): generation by transformers behind verl's rollout interface."""
