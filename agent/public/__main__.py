"""``python -m rejoinder``: the command line."""

from rejoinder.agent.cli.app import main

main()
