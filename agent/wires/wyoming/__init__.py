"""The Wyoming protocol, for Home Assistant."""
