"""The policies of hosts, and their backoffs."""
