"""The verl plug-in: what makes unedited verl run on a CPU, a Mac or a Pascal card.

``VERL_USE_EXTERNAL_MODULES=harness.adapt.plugin`` makes verl import it in every process. It registers
a platform, two rollout backends and an agent loop through verl's own registries, and applies the
named patches in :mod:`harness.adapt.patches` where verl leaves no other way.
"""
