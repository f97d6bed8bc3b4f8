"""Has pytest explain what fails in the contract."""

import pytest

pytest.register_assert_rewrite('tests.launchers.contract')
