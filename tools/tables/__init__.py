"""Tables of documents that are written from the code or by the tests: checks, roles, faults."""
