"""The agent in another process: the client and the server of its Unix socket, and their limits."""
