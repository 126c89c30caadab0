"""What goes wrong in the lab, one line each."""


class LabError(RuntimeError):
    """The lab cannot do this; the text says why, and what to do."""


class Hung(LabError):
    """A lab host gave no answer in time and was killed; the text names its console log."""
