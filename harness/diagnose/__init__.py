"""Why a run failed: the first true cause in a log, its class and fix, the boundary at fault.

Works on files alone, ours or a cluster's, anywhere: it imports none of torch, verl and ray.
"""
