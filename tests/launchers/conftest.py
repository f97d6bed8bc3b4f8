"""Has pytest explain what fails in the scenarios that test modules share."""

import pytest

pytest.register_assert_rewrite('tests.launchers.contract', 'tests.launchers.gossip')
