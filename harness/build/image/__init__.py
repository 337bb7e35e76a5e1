"""Images as archives: read what an engine saved, make it canonical, compare, build and prove."""
