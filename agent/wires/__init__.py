"""Wire protocols: each turns a client's messages into commands, and events into messages."""
