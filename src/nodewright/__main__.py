"""`python -m nodewright`."""

from nodewright.cli import main

main()
