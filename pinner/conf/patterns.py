"""The patterns of options that are text, each with what it means in words."""

ABSOLUTE_PATH = r"^(/|\Z)"
HOST_NAME = r"^(?!\.{1,2}\Z)[^/\s\x00-\x1f\x7f]{0,255}\Z"
MEANINGS = {
    # Each process may have another working folder.
    ABSOLUTE_PATH: "an absolute path",
    # The name is a part of the paths of the REST API.
    HOST_NAME: "a name of at most 255 characters, without / and spaces",
}
