"""Models that run in other processes and machines, as deployments of Ray Serve."""
