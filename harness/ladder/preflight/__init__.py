"""What stands in the way of a user's own training command, before it waits in a queue.

``command_line`` and ``script`` find the words of the command, ``tree`` composes them, ``facts`` reads what
they name, ``rules`` and its neighbours judge, ``shrink`` makes a run of it for this machine.
"""
