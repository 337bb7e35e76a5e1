"""Host side: from a profile to rendered files, locks, and an environment made from a lock."""
