"""The server: sockets, access, limits, and the calls that run."""
