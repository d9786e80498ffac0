"""What the server answers over plain HTTP, beside the page."""
