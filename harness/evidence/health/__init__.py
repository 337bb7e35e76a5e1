"""Whether a training run is well: what each step says of it, and rules that warn before the loss does."""
