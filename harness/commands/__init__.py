"""The commands, one module a group: arguments in, one call into a room, one result out.

Rooms are imported inside the functions: ``verlock --help`` must not import torch, and a host without the
lock's packages must still be able to render, lock and read records.
"""
