"""Unrolls as columns, and as the bytes of items."""

import random

import jax
import numpy as np
import pytest

from agents.types import Timestep, Unroll
from nodes.unrolls.packing import Columns
from rundir.errors import NonRetryableError
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


def packed(columns, layout):
  """The items of columns, each as one array."""
  return [np.frombuffer(b''.join(parts), np.uint8) for parts in layout.pack(columns)]


def test_packed_columns_come_back_in_any_order_and_others_are_rejected():
  columns = COLUMNS.flatten(numbered_unrolls(3, 2)) | {'unroll_id': np.array([7, 2**62])}
  items = packed(columns, COLUMNS)
  assert len(items) == 2
  again = COLUMNS.unpack(items[::-1])
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
  items = packed(columns, several)
  assert len(items) == 2 and several.item_bytes == 3 * COLUMNS.item_bytes
  assert [several.first_id(item) for item in items] == [10, 13]
  jax.tree.map(np.testing.assert_array_equal, several.unpack(items), columns)
  with pytest.raises(ValueError, match='4 unrolls are not whole items of 3'):
    several.pack(several.flatten(numbered_unrolls(3, 4)) | {'unroll_id': np.arange(4)})


def unrolls_of_screens(count, screens):
  """Unrolls with screens `[count, 20, 84, 84]` and logits that do not shrink."""
  noise = np.frombuffer(random.Random(0).randbytes(count * 20 * 64 * 4), np.float32)
  rows = np.zeros((count, 20), np.float32)
  return Unroll(
    timestep=Timestep(rows.astype(np.uint8), rows, rows, screens),
    action=rows.astype(np.int32),
    extras={'logits': noise.reshape(count, 20, 64)},
    policy_version=rows.astype(np.int32),
    core_state=(),
    environment_id=np.arange(count, dtype=np.int32),
  )


@pytest.mark.parametrize('unrolls_per_item', [1, 4])
def test_screens_shrink_and_what_does_not_is_sent_from_where_it_is(unrolls_per_item):
  screens = np.zeros((8, 20, 84, 84), np.uint8)
  screens[:, :, 30:34, 10:70] = np.arange(20)[:, None, None]
  unrolls = unrolls_of_screens(8, screens)
  layout = Columns(jax.tree.map(lambda x: x[0], unrolls), unrolls_per_item)
  columns = layout.flatten(unrolls) | {'unroll_id': np.arange(8)}
  parts = layout.pack(columns)
  assert sum(len(part) for item in parts for part in item) < screens.nbytes / 20
  shared = [np.shares_memory(part, unrolls.extras['logits']) for part in parts[0][1:]]
  # An unroll's logits are too few for a block of their own.
  assert sum(shared) == (unrolls_per_item == 4)
  again = layout.unpack(packed(columns, layout))
  for name, column in columns.items():
    assert again[name].dtype == column.dtype and again[name].tobytes() == column.tobytes()

  noise = np.frombuffer(random.Random(1).randbytes(screens.nbytes), np.uint8).reshape(screens.shape)
  columns['timestep/observation'] = noise
  sent = layout.pack(columns)[0][1]
  assert np.shares_memory(sent, noise)
  np.testing.assert_array_equal(
    layout.unpack(packed(columns, layout))['timestep/observation'], noise
  )


def test_items_of_another_layout_are_refused_in_one_sentence():
  columns = COLUMNS.flatten(numbered_unrolls(3, 1)) | {'unroll_id': np.array([7])}
  (item,) = packed(columns, COLUMNS)
  wrong_sizes = Columns(EXAMPLE, unrolls_per_item=2)
  for layout, other in ((COLUMNS, item[:-1]), (COLUMNS, item[:3]), (wrong_sizes, item)):
    with pytest.raises(NonRetryableError, match='another layout'):
      layout.unpack([other])
