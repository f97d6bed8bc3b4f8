"""Calls that carry data: what they carry and refuse, and that no bytes but their own are read."""

import collections
import math
import pickle
import random
from concurrent import futures

import ml_dtypes
import numpy as np
import pytest

import courier
from courier import data
from tests.courier import hostile
from tests.courier.conftest import DEADLINE

Point = collections.namedtuple('Point', 'x y')
VALUES = {
  'constants': [None, True, False, (), [], {}],
  'ints': [0, -1, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 2**127, -(2**128), 2**2000],
  'floats': [0.0, -0.0, math.inf, 1e-310, 0.1],
  'texts': ['', 'a', 'é\0', '\udc80', '中' * 9000],
  'bytes': [b'', b'\0\xff', bytes(100_000)],
  'nested': (1, [2.0, {'a': (None, {'': b'b'})}], {'x': 1.5, 'é': -2.5}),
  'scalars': [np.float32(0.1), np.int64(-3), np.bool_(True), np.complex64(1j), np.float64(0.1)],
}
ARRAYS = {
  **{f'{dtype}': np.arange(6).reshape(2, 3).astype(dtype) for dtype in '?bhilBHILefdFD'},
  'bfloat16': np.arange(6).astype(ml_dtypes.bfloat16),
  'no axis': np.array(2.5),
  'no element': np.zeros((3, 0, 2), np.int16),
  'large': np.arange(40_000.0).reshape(200, 200),
  'columns': np.asfortranarray(np.arange(40_000).reshape(200, 200)),
  'strided': np.arange(40_000)[::2],
  'read-only': np.broadcast_to(np.float32(3), (100, 100)),
}


def typed(value):
  """Returns a value with the types of its parts, for comparison."""
  if isinstance(value, dict):
    return dict, {key: typed(part) for key, part in value.items()}
  if isinstance(value, (list, tuple)):
    return type(value), [typed(part) for part in value]
  if isinstance(value, np.ndarray):
    return value.dtype, value.shape, value.tobytes()
  return type(value), repr(value)


@pytest.fixture
def call(serve):
  """A client of an echo; both take only data."""
  server = courier.Server(data_only=True)
  server.Bind('echo', lambda value: value)
  server.Start()
  yield courier.Client(server.address, call_timeout=DEADLINE, data_only=True)
  server.Stop()


@pytest.mark.parametrize('name', VALUES)
def test_plain_values_come_back_as_they_were(call, name):
  assert typed(call.echo(VALUES[name])) == typed(VALUES[name])
  assert math.isnan(call.futures.echo(value=math.nan).result(DEADLINE))


@pytest.mark.parametrize('name', ARRAYS)
def test_arrays_come_back_as_they_were_and_writable(call, name):
  array = ARRAYS[name]
  returned = call.echo({'x': array, 'y': (array,)})
  assert typed(returned) == typed({'x': array, 'y': (array,)})
  returned['x'][...] = 0
  assert typed(returned['y'][0]) == typed(array)


def test_a_large_array_is_copied_once_when_it_is_sent_and_not_when_it_is_received():
  array = np.arange(10_000.0)
  body, (buffer,) = data.encode({'x': array}, 'value')
  array[0] = 7
  memory = bytearray(buffer)
  received = data.decode(body, [memory])['x']
  assert (received[0], received[1]) == (0, 1)
  assert np.shares_memory(received, np.frombuffer(memory, np.uint8))


@pytest.mark.parametrize(
  'value, text',
  [
    ({'loss': [1.0, Point(1, 2)]}, r"\['loss'\]\[1\] is a .*test_data.Point, and calls here carry"),
    (
      collections.Counter(a=1),
      r'\[0\]\[0\] is a collections.Counter, .* plain data only: None, bool',
    ),
    ({1: 'a'}, 'is a dict with a key of type int'),
    ([np.array([None])], r'\[0\] is a NumPy value of dtype object'),
    (np.zeros(2, 'i4,f4'), 'is a NumPy value of dtype'),
    (np.ma.zeros(2), 'is a numpy.ma.* and calls'),
    (1 << 3000, 'is an int of 3001 bits'),
    ([{1}], r'\[0\] is a set, and calls'),
  ],
  ids=lambda value: str(type(value)),
)
def test_a_value_that_is_not_plain_is_named_and_its_call_alone_fails(call, value, text):
  with pytest.raises(courier.StatusNotOk, match=f'^the arguments of echo cannot be sent: .*{text}'):
    call.echo(value)
  server = courier.Server(data_only=True)
  server.Bind('make', lambda: (1, value))
  server.Start()
  client = courier.Client(server.address, call_timeout=DEADLINE, data_only=True)
  with pytest.raises(courier.StatusNotOk, match=r'^the result of make cannot be sent: result\[1\]'):
    client.make()
  server.Stop()
  assert call.echo(1) == 1


def test_a_value_that_contains_itself_is_an_error(call):
  itself = []
  itself.append({'x': itself})
  with pytest.raises(courier.StatusNotOk, match='nested more than 100 deep'):
    call.echo(itself)


def test_a_server_that_takes_only_data_runs_no_pickle_and_says_what_to_do(tmp_path):
  server = courier.Server(data_only=True)
  server.Bind('echo', lambda value: value)
  server.Start()
  client = courier.Client(server.address, call_timeout=DEADLINE)
  for value in (hostile.Bomb(tmp_path / 'ran'), 1):
    with pytest.raises(
      courier.StatusNotOk, match=r'of echo cannot be read: .*needs data_only=True'
    ):
      client.echo(value)
  assert courier.list_methods(client) == ['echo']
  server.Stop()
  assert not list(tmp_path.iterdir())


def test_a_client_that_takes_only_data_runs_no_pickle(tmp_path):
  bomb = hostile.Bomb(tmp_path / 'ran')
  with hostile.server(pickle.dumps(bomb)) as address:
    courier.Client(address, call_timeout=DEADLINE).echo(1)
    bomb.path.unlink()  # Where pickles are taken, it has run.
    client = courier.Client(address, call_timeout=DEADLINE, data_only=True)
    for ask in (client, pickle.loads(pickle.dumps(client))):
      with pytest.raises(
        courier.StatusNotOk, match='result of echo cannot be read: only data is acc'
      ):
        ask.echo(1)
      with pytest.raises(courier.StatusNotOk, match='only data is accepted'):
        courier.list_methods(ask)
    failed = futures.Future()  # In a callback, a call has a connection of its own.

    def in_callback(_):
      try:
        client.echo(1)
      except courier.StatusNotOk as error:
        failed.set_result(str(error))

    client.futures.echo(1).add_done_callback(in_callback)
    assert 'only data is accepted' in failed.result(DEADLINE)
  assert not bomb.path.exists()


def test_a_server_refuses_an_encoding_that_it_does_not_know(serve):
  server = serve(echo=lambda value: value)
  call = hostile.message(hostile.CALL, 5, b'echo', pickle.dumps(((1,), {})), encoding=7)
  kind, name, text = hostile.reply_to(server.address, call)
  assert (kind, name) == (hostile.ERROR, b'INVALID_ARGUMENT') and b'encoding 7 is unknown' in text


def test_an_error_that_makes_no_sense_ends_its_call():
  with (
    hostile.server(b'\xff', hostile.ERROR, b'NO_SUCH_CODE') as address,
    pytest.raises(courier.StatusNotOk) as caught,
  ):
    courier.Client(address, call_timeout=DEADLINE).echo(1)
  assert caught.value.code is courier.StatusCode.UNKNOWN


def test_a_server_that_takes_pickles_takes_data_too_and_replies_in_kind(connect):
  pickling = connect(echo=lambda value: value, make=lambda: Point(1, 2))
  client = courier.Client(pickling.address, call_timeout=DEADLINE, data_only=True)
  assert client.echo((1, 'a')) == (1, 'a') and pickling.echo(Point(1, 2)) == Point(1, 2)
  assert pickling.make() == Point(1, 2)
  with pytest.raises(
    courier.StatusNotOk, match=r'result of make cannot be sent: result is a .*Point'
  ):
    client.make()
  assert courier.list_methods(client) == ['echo', 'make']


def made(rng, depth=0):
  """Returns a random plain value."""
  kinds = 9 if depth < 4 else 6
  kind = rng.randrange(kinds)
  if kind < 2:
    return rng.choice([None, True, rng.randint(-9, 9), rng.randint(-(2**70), 2**70)])
  if kind < 4:
    return rng.choice([rng.random(), 'text' * rng.randrange(4), bytes(rng.randrange(9))])
  if kind < 6:
    shape = [rng.randrange(4) for _ in range(rng.randrange(3))]
    return rng.choice([np.zeros(shape, rng.choice('bfFe')), np.float32(rng.random())])
  parts = [made(rng, depth + 1) for _ in range(rng.randrange(5))]
  return rng.choice([parts, tuple(parts), {f'key{k}': part for k, part in enumerate(parts)}])


def mutated(rng, body):
  """Returns bytes with some of them changed, removed, repeated or replaced by an extreme number."""
  body = bytearray(body)
  for _ in range(rng.randint(1, 3)):
    at = rng.randrange(len(body) + 1)
    change = rng.randrange(5)
    if change == 0 and at < len(body):
      body[at] = rng.choice(b'NTFiIdsbltmvnaA\0\x0e\x0f\xff')
    elif change == 1:
      del body[at : at + rng.randint(1, 9)]
    elif change == 2:
      body[at:at] = body[rng.randrange(len(body) + 1) :][: rng.randint(1, 40)]
    elif change == 3:
      extreme = rng.choice([1, 2**31, 2**62, 2**63, 2**64 - 1])
      body[at : at + 8] = extreme.to_bytes(8, 'little')
    else:
      del body[at:]
  return bytes(body)


def test_whatever_is_read_is_plain_data_or_a_value_error():
  rng, read = random.Random(0), 0
  for _ in range(300):
    value = made(rng)
    body, buffers = data.encode(value, 'value')
    assert typed(data.decode(body, [bytearray(b) for b in buffers])) == typed(value)
    for _ in range(40):
      try:
        found = data.decode(mutated(rng, body), [bytearray(b) for b in buffers])
      except ValueError:
        continue
      data.encode(found, 'value')  # So it is plain.
      read += 1
  assert 100 < read < 6000  # Both happen.


LIST, COUNT = b'l', (1).to_bytes(8, 'little')


@pytest.mark.parametrize(
  'body, buffers',
  [
    (b'', []),
    (b'x', []),
    (b'NN', []),
    ((LIST + COUNT) * 100_000 + b'N', []),  # Deeper than Python's stack.
    (LIST + b'\xff' * 8, []),
    (b'v' + b'\xff' * 8, []),
    (b's' + b'\xff' * 8, []),
    (b'm' + (2).to_bytes(8, 'little') + bytes(8) + bytes(8) + b'NN', []),  # One key twice.
    (b'a\x00\x02' + (1 << 62).to_bytes(8, 'little') + COUNT, []),
    (b'a\x00\x02' + b'\xff' * 8 + bytes(8), []),
    (b'a\x00\x28' + bytes(8 * 40), []),
    (b'a\x63\x00', []),
    (b'A\x00\x01' + COUNT, []),
    (b'A\x00\x01' + COUNT, [bytearray(2)]),
    (b'N', [bytearray(2)]),
    (pickle.dumps(print), []),
  ],
)
def test_what_claims_to_be_more_than_it_is_is_a_value_error(body, buffers):
  for kind in (bytes, bytearray):
    with pytest.raises(ValueError):
      data.decode(kind(body), buffers)
