"""``python -m harness`` is ``verlock``: images and job files need no console script."""

from harness.cli import main

if __name__ == "__main__":
    main()
