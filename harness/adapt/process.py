"""Whether this process runs verl itself, or only forks the processes that do."""

only_forks = False
