"""``--break``: a place in verl's or the user's code at which a process of the run shows itself.

The place is compiled into the module as it is loaded, in memory: no file changes, all threads and event
loops are covered, and nothing else gets slower. A trace function would miss the threads that Ray has started.
"""
