"""Deps: which locked packages each rung really imports, and who asked for the rest."""
