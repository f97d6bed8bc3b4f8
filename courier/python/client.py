"""The client: calls the methods of a server as if they were its own."""

from __future__ import annotations

import contextlib
import datetime
import functools
import itertools
import logging
import math
import random
import select
import threading
import time
from collections.abc import Callable
from concurrent import futures
from typing import Any

from courier import sockets, sparing, tls, wire
from courier.status import StatusCode, StatusNotOk

_warnings = sparing.SparingLog(logging.getLogger('courier'))
_CONNECT_SECONDS = 10.0  # For one way to the server, up to its preamble.
# Seconds between attempts to connect, doubled each time. Each is shortened by chance, by half at most,
# since thousands of clients lose a server at one time and would return to it at one time.
_FIRST_PAUSE, _LAST_PAUSE = 0.05, 1.0
_chance = random.SystemRandom()  # Programs may have seeded `random` alike.


class Client:
  """Calls the methods of a server: `client.method(...)`, or `client.futures.method(...)`.

  All calls share one connection, and any number may be under way. While the server is away, calls wait,
  and those that have no reply yet are sent again once it is back; so a call may run more than once. A
  call fails with `StatusNotOk`.

  Pickled or forked, a client makes a connection of its own at its next call.
  """

  def __init__(
    self,
    server_address: str,
    compress: bool = False,
    call_timeout: float | datetime.timedelta | None = None,
    wait_for_ready: bool = True,
    chunk_tensors: bool = False,
    *,
    load_balancing_policy: str | None = None,
    propagate_deadline: bool = True,
    data_only: bool = False,
  ):
    """Initialises a client. The first call connects.

    Args:
      server_address: host:port.
      compress: has no effect.
      call_timeout: seconds after which a call fails with DEADLINE_EXCEEDED; None or 0 for never.
      wait_for_ready: False to have calls fail with UNAVAILABLE while the server is away.
      chunk_tensors: has no effect.
      load_balancing_policy: has no effect.
      propagate_deadline: has no effect.
      data_only: whether to send data instead of pickles, and to refuse results that are pickled, so that
        the server cannot run code here; see `courier.data` for what data is.
    """
    self._init_args = (server_address, compress, call_timeout, wait_for_ready)
    if isinstance(call_timeout, datetime.timedelta):
      call_timeout = call_timeout.total_seconds()
    timeout = call_timeout or math.inf
    self._data_only = data_only
    self._channel = _Channel(str(server_address), timeout, wait_for_ready, data_only)
    self._futures = _Futures(self._channel)

  def __del__(self) -> None:
    if '_channel' in self.__dict__:
      self._channel.close()

  def __reduce__(self) -> tuple[Any, ...]:
    return functools.partial(self.__class__, data_only=self._data_only), self._init_args

  @property
  def address(self) -> str:
    """Address of the server."""
    return self._channel.address

  @property
  def futures(self) -> Any:
    """The same methods, each of which returns a `concurrent.futures.Future`."""
    return self._futures

  def __getattr__(self, method: str) -> Callable[..., Any]:
    """Returns a function that makes a call and waits for its result."""
    _check_name(method)
    function = _function(self._channel, method)
    self.__dict__[method] = function
    return function

  def __call__(self, *args: Any, **kwargs: Any) -> Any:
    """Calls the server's `__call__`."""
    return _function(self._channel, '__call__')(*args, **kwargs)


class _Futures:
  """The asynchronous methods of a client."""

  def __init__(self, channel: _Channel):
    self._channel = channel

  def __getattr__(self, method: str) -> Callable[..., futures.Future]:
    _check_name(method)
    channel = self._channel
    return lambda *args, **kwargs: channel.call(wire.CALL, method, (args, kwargs))

  def __call__(self, *args: Any, **kwargs: Any) -> futures.Future:
    return self._channel.call(wire.CALL, '__call__', (args, kwargs))


def list_methods(client: Client) -> list[str]:
  """Returns the names of the methods that the server of a client has."""
  return client._channel.call(wire.LIST, '', None).result()


def _check_name(method: str) -> None:
  """Rejects Python's own names, for which libraries ask every object: `__array__`, `__deepcopy__`."""
  if method.startswith('__') and method.endswith('__'):
    raise AttributeError(method)


def _function(channel: _Channel, method: str) -> Callable[..., Any]:
  def call(*args: Any, **kwargs: Any) -> Any:
    if channel.is_own_thread():  # A callback of a future: nothing would receive the reply.
      with contextlib.closing(channel.copy()) as another:
        return _function(another, method)(*args, **kwargs)
    pending = channel.call(wire.CALL, method, (args, kwargs))
    try:
      return pending.result()
    except BaseException:  # Such as a KeyboardInterrupt of the thread that waits.
      pending.cancel()
      raise
    finally:
      del pending  # An exception refers to this frame, which would refer to the exception.

  return call


class _Call(futures.Future):
  """A call; the reply, the deadline or `cancel` ends it, whichever removes it from its channel."""

  def __init__(self, channel: _Channel, message: wire.Message, deadline: float):
    super().__init__()
    self._channel = channel
    self.message = message
    self.deadline = deadline

  def cancel(self) -> bool:
    """Ends the call unless it has ended; the server does not begin it if it has not begun yet."""
    if self._channel.remove(self):
      super().cancel()
      self.set_running_or_notify_cancel()  # Wakes up `futures.wait`.
    return self.cancelled()


class _Waiter(sockets.Waker):
  """Waits for a connection or to be woken up."""

  def __init__(self) -> None:
    super().__init__()
    self._poll = select.poll()
    self._poll.register(self, select.POLLIN)

  def watch(self, connection: wire.Connection, events: int) -> None:
    """Waits for events of a connection, in place of others if there are any."""
    self._poll.register(connection, events)

  def forget(self, connection: wire.Connection) -> None:
    """Waits for a connection no longer; it is not closed yet."""
    self._poll.unregister(connection)

  def wait(self, seconds: float) -> int:
    """Returns the events of the connection, as a mask; 0 if something else has ended the wait."""
    ready = 0
    milliseconds = None if seconds == math.inf else max(0, math.ceil(1e3 * seconds))
    for descriptor, events in self._poll.poll(milliseconds):
      if descriptor == self.fileno():
        self.clear()
      else:
        ready = events
    return ready


class _Channel:
  """The calls of a client, and the thread that connects, receives replies and watches deadlines.

  The thread runs while there is a connection or a call. It does not keep the client alive.
  """

  def __init__(self, address: str, timeout: float, wait_for_ready: bool, data_only: bool):
    self.address = address
    self._data_only = data_only
    self._timeout = timeout
    self._wait_for_ready = wait_for_ready
    self._numbers = itertools.count()
    self.reset()
    sockets.reset_in_child(self)

  def reset(self) -> None:
    """Begins from nothing in a forked child: without the thread, its calls and its connection."""
    self._lock = threading.Lock()
    self._calls: dict[int, _Call] = {}  # Those under way, by number and so by deadline.
    self._connection: wire.Connection | None = None
    self._thread: threading.Thread | None = None
    self._waiter: _Waiter | None = None  # As long as the thread runs.
    self._failure = ''  # Why there is no connection, if that is known.
    self._asleep_until = 0.0
    self._closed = False

  def call(self, kind: int, method: str, arguments: Any) -> _Call:
    """Begins a call."""
    number = next(self._numbers)
    deadline = time.monotonic() + self._timeout
    try:
      encoding = wire.DATA if self._data_only else wire.PICKLED
      message = wire.message(kind, number, method, arguments, encoding)
    except Exception as error:
      failed = _Call(self, wire.Message(kind, number), deadline)
      text = f'the arguments of {method} cannot be sent: {error}'
      failed.set_exception(StatusNotOk(text, StatusCode.INVALID_ARGUMENT))
      return failed
    call = _Call(self, message, deadline)
    with self._lock:
      if self._waiter is None:
        try:
          self._thread, self._waiter = self._started()
        except (OSError, RuntimeError) as error:  # Too many open files, or too many threads.
          call.set_exception(StatusNotOk(f'{method}: {error}', StatusCode.UNAVAILABLE))
          return call
        self._calls[number] = call
      else:
        self._calls[number] = call
        if not self._send(message) or deadline < self._asleep_until:
          self._waiter.wake()
    return call

  def _started(self) -> tuple[threading.Thread, _Waiter]:
    """Starts the thread, which waits for the lock.

    Raises:
      OSError: if this process may open no more files.
      RuntimeError: if it may have no more threads.
    """
    waiter = _Waiter()
    thread = threading.Thread(target=self._run, args=(waiter,), name='courier', daemon=True)
    try:
      thread.start()
    except RuntimeError:
      waiter.close()
      raise
    return thread, waiter

  def remove(self, call: _Call) -> bool:
    """Returns whether a call has not ended before; its caller has to end it."""
    with self._lock:
      if self._calls.pop(call.message.call, None) is None:
        return False
      if not self._send(wire.Message(wire.CANCEL, call.message.call)):
        self._wake()
    return True

  def is_own_thread(self) -> bool:
    """Returns whether the caller is the thread that receives."""
    return threading.current_thread() is self._thread

  def copy(self) -> _Channel:
    """Returns another channel to the server."""
    return _Channel(self.address, self._timeout, self._wait_for_ready, self._data_only)

  def close(self) -> None:
    """Ends the thread once no call is under way. Takes no lock: garbage collection may call it."""
    self._closed = True
    self._wake()

  def _wake(self) -> None:
    waiter = self._waiter
    if waiter is not None:
      waiter.wake()

  def _send(self, message: wire.Message) -> bool:
    """Sends a message if there is a connection; returns False if the thread has to send a rest."""
    return self._connection is None or self._connection.send(message)

  def _run(self, waiter: _Waiter) -> None:
    scratch, pause = wire.scratch(), _FIRST_PAUSE
    while self._is_needed(waiter):
      try:
        connection = self._connect(waiter, scratch)
        self._failure = ''
        pause = _FIRST_PAUSE
        self._receive(waiter, connection)
      except ValueError as error:
        self._fail_all(str(error), StatusCode.INVALID_ARGUMENT)
      except OSError as error:
        self._failure = f'failed to connect to all addresses: {self.address}: {_why(error)}'
        if isinstance(error, tls.HandshakeError):
          _warnings.warn(self._failure, self._failure)
        if not self._wait_for_ready:
          self._fail_all(self._failure, StatusCode.UNAVAILABLE)
        until = time.monotonic() + pause * _chance.uniform(0.5, 1.0)
        while time.monotonic() < until and self._calls:
          self._wait(waiter, until)
        pause = min(2 * pause, _LAST_PAUSE)
      except Exception as error:  # Such as a MemoryError.
        self._fail_all(f'the calls to {self.address} have failed: {error!r}', StatusCode.INTERNAL)

  def _is_needed(self, waiter: _Waiter) -> bool:
    """Returns whether there are calls; if not, the thread ends, and the next call starts another."""
    with self._lock:
      if not self._calls:
        self._waiter = None
        waiter.close()
      return self._waiter is not None

  def _connect(self, waiter: _Waiter, scratch: memoryview) -> wire.Connection:
    """Returns a connection on which the server has sent its preamble.

    Raises:
      OSError: if there is none; of the last way that was tried.
      ValueError: if the address is malformed, or COURIER_TLS is wrong.
    """
    context = tls.client_context()
    failure = OSError('the host has no address')
    for stream, address in sockets.routes(self.address):
      connection = wire.Connection(stream, scratch, context)
      until = time.monotonic() + _CONNECT_SECONDS
      try:
        waiter.watch(connection, select.POLLOUT)
        with contextlib.suppress(BlockingIOError):
          stream.connect(address)
        while not self._wait(waiter, until):
          self._check_time(until)
        sockets.check_connected(stream)
        connection.flush()
        waiter.watch(connection, select.POLLIN)
        while not connection.is_greeted:
          if self._wait(waiter, until):
            connection.receive()
          self._check_time(until)
        return connection
      except OSError as error:
        waiter.forget(connection)
        connection.close()
        if not isinstance(failure, tls.HandshakeError):
          failure = error
    raise failure

  def _check_time(self, until: float) -> None:
    if time.monotonic() > until:
      raise TimeoutError('the server does not reply')
    if not self._calls:
      raise TimeoutError('no call waits any more')

  def _receive(self, waiter: _Waiter, connection: wire.Connection) -> None:
    """Sends the calls under way and receives replies until the connection is lost (OSError)."""
    with self._lock:
      self._connection = connection
      for call in self._calls.values():
        connection.send(call.message)
    sending = False
    try:
      while self._calls or not self._closed:
        if sending != bool(connection.unsent):
          sending = not sending
          waiter.watch(connection, select.POLLIN | select.POLLOUT if sending else select.POLLIN)
        ready = self._wait(waiter, math.inf)
        if ready & select.POLLOUT:
          with self._lock:
            connection.flush()
        if ready & ~select.POLLOUT:
          for message in connection.receive():
            self._end(message)
            del message  # Its arrays are the caller's now.
    finally:
      with self._lock:
        self._connection = None
      waiter.forget(connection)
      connection.close()

  def _wait(self, waiter: _Waiter, until: float) -> int:
    """Waits for the next event, and ends calls past their deadlines.

    Returns:
      What the connection is ready for, as a mask of `select.poll`.
    """
    now = time.monotonic()
    late = []
    with self._lock:
      first = now + self._timeout
      for call in self._calls.values():
        if call.deadline > now:
          first = call.deadline
          break
        late.append(call)
      self._asleep_until = until = min(until, first)
    for call in late:
      if self.remove(call):
        text = f'Deadline Exceeded; {self._failure}' if self._failure else 'Deadline Exceeded'
        call.set_exception(StatusNotOk(text, StatusCode.DEADLINE_EXCEEDED))
    return waiter.wait(0 if late else until - now)

  def _end(self, message: wire.Message) -> None:
    """Ends a call by its reply, unless it has ended before."""
    call = self._calls.pop(message.call, None)
    if call is None:
      return
    if message.kind == wire.ERROR:
      text = bytes(message.body).decode(errors='replace')
      code = StatusCode.__members__.get(message.name, StatusCode.UNKNOWN)
      call.set_exception(StatusNotOk(text, code))
      return
    try:
      result = message.value(self._data_only)
    except Exception as error:
      text = f'the result of {call.message.name} cannot be read: {error}'
      call.set_exception(StatusNotOk(text, StatusCode.INTERNAL))
    else:
      call.set_result(result)

  def _fail_all(self, text: str, code: StatusCode) -> None:
    for call in list(self._calls.values()):
      if self.remove(call):
        call.set_exception(StatusNotOk(text, code))


def _why(error: OSError) -> str:
  if isinstance(error, tls.HandshakeError):
    return f'the TLS handshake with the server has failed: {error}'
  return str(error)
