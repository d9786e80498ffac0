"""Keeps conversations where another process finds them: a server that was restarted, or another one."""
