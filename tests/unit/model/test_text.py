import pytest

from pinner.model.text import ranges


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([], ""),
        ([7], "7"),
        ([3, 1, 2, 8, 2], "1-3,8"),
        ([4194303, 4194304], "4194303-4194304"),
        ([0, 10**12], "0,1000000000000"),
    ],
)
def test_numbers_have_the_form_of_a_cpu_list_whatever_their_size(numbers, text):
    assert ranges(numbers) == text
