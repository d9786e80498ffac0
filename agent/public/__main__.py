"""``python -m rejoinder``: the command line."""

import sys

from rejoinder.models.hints import NotInstalled, install, needing


def main() -> None:
    """Run the command line. Where a package is missing, say which extra brings it, and end with 1."""
    try:
        with needing("all", "the command rejoinder", f", or {install('server')} for a server without models"):
            from rejoinder.agent.cli.app import main as run

            run()
    except NotInstalled as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
