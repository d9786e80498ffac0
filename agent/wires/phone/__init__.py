"""Telephone carriers: Twilio and its dialects, Vonage, Asterisk."""
