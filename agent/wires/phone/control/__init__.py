"""What carriers can do for a call beside carrying audio, by their REST interfaces."""
