"""The errors of the lab; each text is one line."""


class LabError(RuntimeError):
    """The lab cannot do this; the text names the reason and the remedy."""


class Hung(LabError):
    """A lab host gave no answer in time and was killed; the text names its console log."""
