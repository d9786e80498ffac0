"""One language model over several: failover, hedged requests and circuit breakers."""
