"""What a server needs to run beside others: lines, a drain, and addresses behind proxies."""
