"""The contract at run time: what a profile forbids is counted, refused where it happens, and reported.

``terms`` says what is forbidden, ``ledger`` counts the operations of a process, ``guards`` and ``triton``
stand where a library, an attention or a kernel is asked for, ``violation`` says where it came from.
"""
