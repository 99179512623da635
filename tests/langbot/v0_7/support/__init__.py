"""The runtime under test, with clients for it."""
