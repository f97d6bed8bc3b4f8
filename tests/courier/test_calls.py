"""What a call carries, how it ends, and what it raises."""

import copy
import datetime
import pickle
import threading
import time
from concurrent import futures

import jax.numpy as jnp
import numpy as np
import pytest

import courier
from courier.python import py_server
from tests.courier.conftest import DEADLINE


@pytest.fixture(autouse=True, params=['unix', 'tls'])
def transport(request):
  """What the calls of this file go over."""
  if request.param == 'tls':
    request.getfixturevalue('over_tls')


class Adder:
  def add(self, a, b=100):
    return a + b


def test_a_call_returns_what_the_function_returns(connect):
  client = connect(no_args=lambda: 1000, add=lambda a, b: a + b, method=Adder().add)
  assert client.no_args() == 1000
  assert client.add(12, 5) == 17
  assert client.method(23) == 123
  assert client.method(23, b=500) == 523
  assert client.futures.method(b=1, a=2).result(DEADLINE) == 3


@pytest.mark.parametrize(
  'value',
  [
    b'1234',
    b'1234' * (1 << 20),
    'text',
    None,
    (1, [2.5, {'a': True}]),
    2**80,
    np.float32(3),
    datetime.timedelta(1),
  ],
  ids=lambda value: str(value)[:20],
)
def test_values_come_back_as_they_were_with_their_types(connect, value):
  returned = connect(echo=lambda value: value).echo(value)
  assert returned == value and type(returned) is type(value)


@pytest.mark.parametrize('size', [3, 100_000, 5_000_000])
@pytest.mark.parametrize('writable', [True, False])
def test_arrays_come_back_equal_and_writable(connect, size, writable):
  array = np.arange(size, dtype=np.float32)
  array.flags.writeable = writable
  tree = {'a': array, 'b': array.reshape(-1, 1).T, 'c': array[::2], 'd': np.array(['x', None])}
  returned = connect(echo=lambda value: value).echo(tree)
  for name, value in tree.items():
    np.testing.assert_array_equal(returned[name], value)
    assert returned[name].dtype == value.dtype
    returned[name][:1] = 0


def test_jax_arrays_are_arguments_and_results(connect):
  client = connect(double=lambda value: 2 * value)
  np.testing.assert_array_equal(client.double(jnp.arange(4)), [0, 2, 4, 6])


@pytest.mark.slow
def test_200_megabytes_come_back(connect):
  array = np.arange(25_000_000, dtype=np.float64)
  np.testing.assert_array_equal(connect(echo=lambda value: value).echo(array), array)


def test_a_call_carries_the_array_as_it_was_when_the_call_began(connect):
  go = threading.Event()
  client = connect(1, wait=lambda: go.wait(DEADLINE), first=lambda array: array[0])
  client.futures.wait()
  array = np.zeros(5_000_000)
  reply = client.futures.first(array)
  array[:] = 1
  go.set()
  assert reply.result(DEADLINE) == 0


def fail(error):
  raise error


class UnknownError(Exception):
  pass


@pytest.mark.parametrize(
  'error, code',
  [
    (ValueError('why'), 'INVALID_ARGUMENT'),
    (TypeError('why'), 'INVALID_ARGUMENT'),
    (StopIteration('why'), 'OUT_OF_RANGE'),
    (MemoryError('why'), 'RESOURCE_EXHAUSTED'),
    (NotImplementedError('why'), 'UNIMPLEMENTED'),
    (KeyboardInterrupt('why'), 'ABORTED'),
    (SyntaxError('why'), 'INTERNAL'),
    (KeyError('why'), 'NOT_FOUND'),
    (SystemExit('why'), 'UNKNOWN'),
    (UnknownError('why'), 'UNKNOWN'),
  ],
  ids=lambda value: type(value).__name__,
)
def test_an_exception_of_the_function_reaches_the_caller_with_its_traceback(connect, error, code):
  client = connect(fail=lambda: fail(error), add=lambda a, b: a + b)
  reply = client.futures.fail()
  for call in (client.fail, lambda: reply.result(DEADLINE)):
    with pytest.raises(courier.StatusNotOk, match=r'raised on the server:\nTraceback') as caught:
      call()
    assert 'in fail\n' in str(caught.value) and f'{type(error).__name__}: ' in str(caught.value)
    assert str(caught.value.code) == f'StatusCode.{code}'
    assert pickle.loads(pickle.dumps(caught.value)).code is caught.value.code
  assert reply.exception() is caught.value
  assert client.add(1, 2) == 3  # The thread of the handler lives on.


def test_calls_that_do_not_fit_the_function_fail(connect):
  client = connect(add=lambda a, b: a + b)
  with pytest.raises(courier.StatusNotOk, match='missing 1 required positional argument'):
    client.add(1)
  with pytest.raises(courier.StatusNotOk, match='method subtract not found') as caught:
    client.subtract(1, 2)
  assert caught.value.code is courier.StatusCode.NOT_FOUND
  with pytest.raises(courier.StatusNotOk, match='method subtract not found'):
    client.futures.subtract(1, 2).result(DEADLINE)


class OnlyHere:
  """Can be pickled but not unpickled."""

  def __reduce__(self):
    return fail, (RuntimeError('only here'),)


def test_what_cannot_be_pickled_fails_its_own_call_only(connect):
  client = connect(echo=lambda value: value, function=lambda: lambda: 1, only_here=OnlyHere)
  for call in (lambda: client.echo(lambda: 1), client.futures.echo(lambda: 1).result):
    with pytest.raises(courier.StatusNotOk, match='arguments of echo cannot be sent'):
      call()
  with pytest.raises(courier.StatusNotOk, match='result of function cannot be sent'):
    client.function()
  with pytest.raises(courier.StatusNotOk, match='arguments of echo cannot be read: only here'):
    client.echo(OnlyHere())
  with pytest.raises(courier.StatusNotOk, match='result of only_here cannot be read: only here'):
    client.only_here()
  assert client.echo(1) == 1


def test_programs_catch_the_exception_by_the_name_that_they_know():
  from pybind11_abseil.status import StatusNotOk

  assert StatusNotOk is courier.StatusNotOk


def test_functions_are_bound_and_unbound_while_clients_are_connected(serve):
  server = serve(value=lambda: 1234)
  client = courier.Client(server.address, call_timeout=DEADLINE)
  assert client.value() == 1234
  server.Bind('value', lambda: 2345)
  assert client.value() == 2345
  server.Bind('other', lambda: 1)
  assert courier.list_methods(client) == ['other', 'value']
  server.Unbind('value')
  assert courier.list_methods(client) == ['other']
  with pytest.raises(courier.StatusNotOk, match='method value not found'):
    client.value()


def test_a_client_itself_is_called(connect):
  client = connect(__call__=lambda value: value + 1)
  assert client(1) == 2
  assert client.futures(value=2).result(DEADLINE) == 3


def test_libraries_that_ask_for_special_methods_make_no_calls(connect):
  client = connect(add=lambda a, b: a + b)
  assert not hasattr(client, '__array__') and not hasattr(client.futures, '__array__')
  assert copy.deepcopy(client).add(1, 2) == 3


@pytest.mark.parametrize('timeout', [None, 0, datetime.timedelta(0)])
def test_a_call_without_a_timeout_has_no_deadline(serve, timeout):
  server = serve(sleep=time.sleep)
  assert courier.Client(server.address, call_timeout=timeout).sleep(0.2) is None


@pytest.mark.slow
@pytest.mark.parametrize('timeout', [1, 0.5, datetime.timedelta(seconds=0.5)], ids=str)
def test_a_call_that_takes_too_long_fails_and_the_next_one_succeeds(serve, timeout):
  go = threading.Event()
  server = serve(wait=lambda: go.wait(DEADLINE), add=lambda a, b: a + b)
  client = courier.Client(server.address, call_timeout=timeout)
  for call in (client.wait, lambda: client.futures.wait().result(DEADLINE)):
    with pytest.raises(courier.StatusNotOk, match='Deadline Exceeded') as caught:
      call()
    assert str(caught.value.code) == 'StatusCode.DEADLINE_EXCEEDED'
  go.set()
  assert courier.Client(server.address, call_timeout=DEADLINE).add(1, 2) == 3


def test_a_pickled_client_keeps_its_address_and_its_timeout(serve):
  go = threading.Event()
  server = serve(wait=lambda: go.wait(DEADLINE))
  client = pickle.loads(pickle.dumps(courier.Client(server.address, call_timeout=0.5)))
  assert client.address == server.address
  with pytest.raises(courier.StatusNotOk, match='Deadline Exceeded'):
    client.wait()
  go.set()


def test_clients_travel_as_arguments(connect, serve):
  other = courier.Client(serve(add=lambda a, b: a + b).address, call_timeout=DEADLINE)
  assert connect(ask=lambda client: client.add(1, 2)).ask(other) == 3


def test_a_cancelled_call_ends_at_once_and_is_not_begun(connect):
  go, begun = threading.Event(), []
  client = connect(1, wait=lambda: go.wait(DEADLINE), begin=begun.append)
  blocking, cancelled, kept = (
    client.futures.wait(),
    client.futures.begin('cancelled'),
    client.futures.begin('kept'),
  )
  ended = []
  cancelled.add_done_callback(ended.append)
  assert cancelled.cancel() and cancelled.cancelled() and ended == [cancelled]
  assert futures.wait([cancelled], DEADLINE).done == {cancelled}
  with pytest.raises(futures.CancelledError):
    cancelled.result(DEADLINE)
  go.set()
  kept.result(DEADLINE)
  assert begun == ['kept']
  assert blocking.result(DEADLINE) and not blocking.cancel() and not blocking.cancelled()


def test_a_call_that_has_begun_is_cancelled_for_its_caller(connect):
  go, begun = threading.Event(), threading.Event()

  def wait():
    begun.set()
    go.wait(DEADLINE)

  client = connect(wait=wait, add=lambda a, b: a + b)
  reply = client.futures.wait()
  assert begun.wait(DEADLINE) and reply.cancel()
  go.set()
  assert client.add(1, 2) == 3


def test_calls_of_one_client_run_at_once_up_to_the_size_of_the_pool(connect):
  together = threading.Barrier(8)
  client = connect(8, meet=lambda: together.wait(DEADLINE))
  replies = [client.futures.meet() for _ in range(24)]
  assert sorted(reply.result(DEADLINE) for reply in replies) == sorted(3 * [*range(8)])


def test_calls_beyond_the_size_of_the_pool_wait(connect):
  running, most, lock = [0], [0], threading.Lock()

  def work():
    with lock:
      running[0] += 1
      most[0] = max(most[0], running[0])
    time.sleep(0.01)
    with lock:
      running[0] -= 1

  client = connect(3, work=work)
  for reply in [client.futures.work() for _ in range(30)]:
    reply.result(DEADLINE)
  assert most[0] == 3


def test_a_server_whose_calls_wait_for_each_other_says_so(connect, caplog, monkeypatch):
  monkeypatch.setattr(py_server, '_STUCK_SECONDS', 0.1)
  go = threading.Event()
  client = connect(2, wait=lambda: go.wait(DEADLINE), go=go.set)
  replies = [client.futures.wait(), client.futures.wait()]
  deadline = time.monotonic() + DEADLINE
  replies.append(client.futures.go())
  while 'thread_pool_size' not in caplog.text and time.monotonic() < deadline:
    time.sleep(0.01)
  go.set()
  assert 'no call has ended for 0 s, and 1 wait for a thread' in caplog.text
  futures.wait(replies, DEADLINE)


def test_a_reply_arrives_after_its_client_is_gone(serve):
  go = threading.Event()
  server = serve(wait=lambda: go.wait(DEADLINE))
  reply = courier.Client(server.address, call_timeout=DEADLINE).futures.wait()
  go.set()
  assert reply.result(DEADLINE) is True


def test_callbacks_make_further_calls(connect):
  client, ended = connect(add=lambda a, b: a + b), futures.Future()

  def again(reply):
    total = client.add(reply.result(), 10)
    client.futures.add(total, 1).add_done_callback(lambda last: ended.set_result(last.result()))

  client.futures.add(1, 2).add_done_callback(again)
  assert ended.result(DEADLINE) == 14


def test_a_server_starts_once_and_has_to_be_started():
  server = courier.Server('name')
  assert not server.has_started and server.address == f'localhost:{server.port}'
  for action in (server.Stop, server.Join, lambda: server.SetIsHealthy(True)):
    with pytest.raises(ValueError, match='not started'):
      action()
  server.Start()
  server.SetIsHealthy(False)
  with pytest.raises(ValueError, match='already started'):
    server.Start()
  assert server.has_started
  server.Stop()
  server.Stop()
  server.Join()


def test_a_port_in_use_is_an_error(serve):
  port = serve().port
  with pytest.raises(OSError, match=f'port {port} cannot be listened on'):
    courier.Server(port=port).Start()


def test_a_stopping_server_finishes_the_calls_that_have_arrived(serve):
  go, begun, ended = threading.Event(), threading.Event(), []

  def work(number):
    begun.set()
    go.wait(DEADLINE)
    ended.append(number)
    return np.full(5_000_000, number)

  server = serve(thread_pool_size=1, work=work)
  client = courier.Client(server.address, call_timeout=DEADLINE)
  replies = [client.futures.work(number) for number in range(2)]
  courier.list_methods(client)  # Has a reply once the server has read the calls before it.
  assert begun.wait(DEADLINE)
  stop = threading.Thread(target=server.Stop)
  stop.start()
  go.set()
  assert [reply.result(DEADLINE)[-1] for reply in replies] == [0, 1] == ended
  stop.join(DEADLINE)
  assert not stop.is_alive()


def test_a_handler_stops_its_own_server(serve):
  server = serve()
  server.Bind('stop', server.Stop)
  assert courier.Client(server.address, call_timeout=DEADLINE).stop() is None
  server.Join()
