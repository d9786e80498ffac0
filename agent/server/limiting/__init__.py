"""Limits of keys and addresses: at one server, and at all servers that share a store."""
