"""``verlock update``: newer pins, one change at a time, each tried before it is proposed."""
