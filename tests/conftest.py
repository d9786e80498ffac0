"""Assertions in the helpers say what they compared, as those in the tests do."""

import pytest

pytest.register_assert_rewrite("support")
