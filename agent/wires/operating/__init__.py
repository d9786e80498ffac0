"""What operators decide about a call: its limits, and its end with the server."""
