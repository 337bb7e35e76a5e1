"""Memory plan: how many bytes each phase of a PPO step takes, with no GPU and no weights."""
