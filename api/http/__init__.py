"""The embedded HTTP/1.1 server: reads whole requests in an event loop, and answers each in a worker thread."""
