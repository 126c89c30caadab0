"""The use cases of pinner. protocol names them, local answers them in this process, and compose puts the parts
together."""
