"""Wire protocols. Each one turns a client's messages into commands, and session events into messages."""
