"""Doctor: what this machine is, and what of it stands in the way of a profile."""
