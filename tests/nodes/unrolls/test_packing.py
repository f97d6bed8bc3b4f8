"""Unrolls as columns, and as the bytes of items."""

import jax
import numpy as np
import pytest

from nodes.unrolls.packing import Columns
from tests.nodes.numbered import COLUMNS, EXAMPLE, L, numbered_unrolls


def test_columns_name_every_leaf_and_put_them_back():
  unroll = numbered_unrolls(3, 1)
  columns = COLUMNS.flatten(unroll)
  assert set(columns) == {
    'timestep/step_type',
    'timestep/reward',
    'timestep/discount',
    'timestep/observation',
    'action',
    'extras/logits',
    'policy_version',
    'core_state/lstm/0',
    'core_state/lstm/1',
    'environment_id',
  }
  again = COLUMNS.unflatten(dict(reversed(columns.items())))
  jax.tree.map(np.testing.assert_array_equal, again, unroll)


def test_packed_columns_come_back_in_any_order_and_others_are_rejected():
  columns = COLUMNS.flatten(numbered_unrolls(3, 2)) | {'unroll_id': np.array([7, 2**62])}
  packed = COLUMNS.pack(columns)
  assert packed.shape == (2, COLUMNS.item_bytes)
  again = COLUMNS.unpack(packed[::-1])
  assert set(again) == set(columns)
  for name, column in columns.items():
    assert again[name].dtype == column.dtype
    np.testing.assert_array_equal(again[name][::-1], column)
  for wrong in (np.zeros((2, L), np.int64), np.zeros((2, L + 1), np.int32)):
    with pytest.raises(ValueError, match='action is int'):
      COLUMNS.pack(columns | {'action': wrong})


def test_items_of_several_unrolls_hold_them_in_order_and_with_their_ids():
  several = Columns(EXAMPLE, unrolls_per_item=3)
  columns = several.flatten(numbered_unrolls(3, 6)) | {'unroll_id': np.arange(10, 16)}
  packed = several.pack(columns)
  assert packed.shape == (2, 3 * COLUMNS.item_bytes) == (2, several.item_bytes)
  assert [several.first_id(item) for item in packed] == [10, 13]
  jax.tree.map(np.testing.assert_array_equal, several.unpack(packed), columns)
  with pytest.raises(ValueError, match='4 unrolls are not whole items of 3'):
    several.pack(several.flatten(numbered_unrolls(3, 4)) | {'unroll_id': np.arange(4)})
