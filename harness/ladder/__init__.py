"""The ladder: each rung adds exactly one boundary to the one before it, up to verl's own trainer."""
