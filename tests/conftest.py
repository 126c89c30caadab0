"""All tests: the examples of the property tests are the same in each run, so that a change alone can make them fail.

``--hypothesis-profile random`` takes new examples; ``--hypothesis-seed N`` repeats those.
"""

from hypothesis import settings

settings.register_profile("fixed", derandomize=True)
settings.register_profile("random", derandomize=False)
settings.load_profile("fixed")
