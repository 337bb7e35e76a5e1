"""Models, tasks and rewards made at run time, and the checks of those that a user brings.

torch, transformers and pyarrow are imported inside functions: the checks of a model folder need none.
"""
