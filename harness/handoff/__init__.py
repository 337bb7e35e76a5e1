"""Handing an image on: the bundle, the job files for a cluster, and what a receiver checks it with.

What was proven here is named by digest everywhere, so that a cluster cannot run something else by mistake.
"""
