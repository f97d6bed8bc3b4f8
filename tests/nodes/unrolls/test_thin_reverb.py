"""Reverb without TensorFlow, in processes of their own."""

import pytest

from tests.agents.subprocesses import run_python
from tests.ports import unused_port

SERVE = """
table = reverb.Table.queue('unrolls', 5)
server = reverb.Server([table], port)
client = reverb.Client(f'127.0.0.1:{port}')
with client.trajectory_writer(num_keep_alive_refs=1) as writer:
  writer.append({'x': np.arange(3)})
  writer.create_item('unrolls', 1.0, {'x': writer.history['x'][-1]})
assert client.server_info()['unrolls'].current_size == 1
print(pybind.Client(client.server_address).NewSampler('unrolls', -1, 1).GetNextTrajectory()[-1])
server.stop()
"""


@pytest.mark.slow
def test_a_table_is_served_written_and_read_without_tensorflow():
  code = f"""
import sys
import numpy as np
from nodes.unrolls.thin_reverb import pybind, reverb
port = {unused_port()}
{SERVE}
assert 'tensorflow' not in sys.modules and not hasattr(reverb, 'TrajectoryDataset')
"""
  assert run_python('-c', code).split('\n')[0] == '[0 1 2]'


@pytest.mark.nightly
def test_tensorflow_is_whole_when_it_is_imported_later():
  code = f"""
import numpy as np
from nodes.unrolls.thin_reverb import pybind, reverb
import tensorflow as tf
assert int(tf.reduce_sum(tf.constant([1, 2]))) == 3
assert tf.make_tensor_proto([1.0]).tensor_shape.dim[0].size == 1
port = {unused_port()}
{SERVE}
"""
  assert run_python('-c', code).split('\n')[0] == '[0 1 2]'


@pytest.mark.slow
def test_a_process_that_has_tensorflow_keeps_all_of_reverb():
  code = """
import tensorflow
from nodes.unrolls.thin_reverb import reverb
print(reverb.TrajectoryDataset.__mro__[1].__name__)
"""
  assert run_python('-c', code).startswith('Dataset')
