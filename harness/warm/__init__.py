"""Fork server: torch, transformers, ray and verl are imported once, and each process of a run is forked.

Linux and CPU runs only. Nothing of verl's or Ray's source is touched; where the installed Ray is not
the one this was made for, the run starts normally and says so.
"""
