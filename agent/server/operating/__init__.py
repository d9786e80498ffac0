"""What operators need of a server: its end, systemd, and watching for what stalls."""
