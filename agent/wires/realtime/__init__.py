"""The OpenAI Realtime protocol."""
