"""The use cases answered by a pinner server over REST."""
