"""Which of several language models is asked first, by rules."""
