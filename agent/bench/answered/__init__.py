"""Measures who is taken to have answered a call: people, mailboxes, menus, announcements."""
