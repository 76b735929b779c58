"""`python -m fleet`."""

from fleet.cli.main import main

main()
