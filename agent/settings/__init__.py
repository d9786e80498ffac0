"""The settings of a server, by subject. ``rejoinder.agent.config`` reads them."""
