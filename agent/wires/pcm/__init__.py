"""Raw PCM over a WebSocket."""
