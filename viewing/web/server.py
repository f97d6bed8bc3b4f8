"""Serves the live page: read-only, to whoever knows the token, from the given run directories only.

Every answer is one of the files in `static/`, JSON that `state` makes, or the newest video of a run. A
request names a run by its position and a node by its name, never a path.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import importlib.resources
import os
import secrets
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from viewing.web.state import State

_FILES = {
  'app.js': 'text/javascript',
  'chart.js': 'text/javascript',
  'graph.js': 'text/javascript',
  'icon.svg': 'image/svg+xml',
  'style.css': 'text/css',
  'vendor/uPlot.iife.min.js': 'text/javascript',
  'vendor/uPlot.min.css': 'text/css',
}
_HEADERS = {
  'Content-Security-Policy': "default-src 'none'; script-src 'self'; style-src 'self'; "
  "img-src 'self'; media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
  "frame-ancestors 'none'",
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Cache-Control': 'no-store',
}
# Names by which a browser on this machine, or at the near end of `ssh -L`, reaches the page. Another
# name would be a page elsewhere whose name has been pointed at this machine (DNS rebinding).
_HOSTS = {'127.0.0.1', 'localhost', '[::1]'}
_FRESH_SECONDS = 1.0


class Page:
  """The request handlers."""

  def __init__(self, state: State, token: str):
    """Initialises the page.

    Args:
      state: the runs.
      token: what a request must have, in its query or its cookie.
    """
    self._state = state
    self._token = token
    # Pages on ports of one host share cookies.
    self._cookie = f'launchpod_{hashlib.sha256(token.encode()).hexdigest()[:8]}'
    self._lock = threading.Lock()
    self._read: tuple[float, dict[str, Any]] = (-_FRESH_SECONDS, {})

  def app(self) -> web.Application:
    """Returns the application, which answers GET only."""
    app = web.Application(middlewares=[self._guard])
    for path, handler in (
      ('/', self._index),
      ('/static/{name:.+}', self._static),
      ('/state', self._get_state),
      ('/node', self._get_node),
      ('/video', self._get_video),
    ):
      app.router.add_get(path, handler, allow_head=False)
    return app

  @web.middleware
  async def _guard(
    self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
  ) -> web.StreamResponse:
    try:
      self._check(request)
      response = await handler(request)
    except web.HTTPException as error:
      response = web.Response(status=error.status, text=f'{error.reason}\n')
    except (OSError, ValueError) as error:
      response = web.Response(status=503, text=f'{error}\n')
    response.headers.update(_HEADERS)
    return response

  def _check(self, request: web.Request) -> None:
    """Raises a refusal unless the request is a GET to this machine with the token."""
    host = request.headers.get('Host', '')
    if host.rpartition(':')[0] not in _HOSTS and host not in _HOSTS:
      raise web.HTTPForbidden(reason='This page is at 127.0.0.1 or localhost only.')
    given = request.query.get('token') or request.cookies.get(self._cookie, '')
    if not hmac.compare_digest(given.encode(), self._token.encode()):
      raise web.HTTPForbidden(reason='The address must have the token that watch.py printed.')
    if request.method != 'GET':
      raise web.HTTPMethodNotAllowed(request.method, ['GET'], reason='This page is read-only.')

  async def _index(self, request: web.Request) -> web.Response:
    response = web.Response(body=_asset('index.html'), content_type='text/html', charset='utf-8')
    response.set_cookie(self._cookie, self._token, httponly=True, samesite='Strict', path='/')
    return response

  async def _static(self, request: web.Request) -> web.Response:
    name = request.match_info['name']
    if name not in _FILES:
      raise web.HTTPNotFound(reason='There is no such file.')
    return web.Response(body=_asset(name), content_type=_FILES[name], charset='utf-8')

  async def _get_state(self, request: web.Request) -> web.Response:
    return web.json_response(await asyncio.to_thread(self._current))

  async def _get_node(self, request: web.Request) -> web.Response:
    node = request.query.get('node', '')
    with _known():
      return web.json_response(await asyncio.to_thread(self._node, _run(request), node))

  async def _get_video(self, request: web.Request) -> web.StreamResponse:
    with _known():
      path = await asyncio.to_thread(self._state.video, _run(request))
    if not path:
      raise web.HTTPNotFound(reason='This run has no video.')
    return web.FileResponse(path)

  def _current(self) -> dict[str, Any]:
    """Returns the state, at most a second old, so that several pages cost as much as one."""
    with self._lock:
      if time.monotonic() - self._read[0] >= _FRESH_SECONDS:
        self._read = time.monotonic(), self._state.read()
      return self._read[1]

  def _node(self, run: int, node: str) -> dict[str, Any]:
    with self._lock:
      return self._state.node(run, node)


def serve(
  run_dirs: list[str], listener: socket.socket, say: Callable[[str], None], token: str = ''
) -> None:
  """Serves the page until interrupted.

  Args:
    run_dirs: of the runs.
    listener: of `tcp_socket` or `unix_socket`; closed at the end, and the file of the latter removed.
    say: receives the address of the page, once it can be opened.
    token: the token of its address; '' for a random one.

  Raises:
    ValueError: if a directory is not a run directory; one sentence.
  """
  state = State(run_dirs)
  path = listener.getsockname() if listener.family == socket.AF_UNIX else ''
  port = 0 if path else listener.getsockname()[1]
  token = token or secrets.token_urlsafe(24)

  async def announce(app: web.Application) -> None:
    if path:
      say(f'ssh -L 8080:{path} HOST, or here: curl --unix-socket {path}')
      say(f'http://127.0.0.1:8080/?token={token}')
    else:
      say(f'http://127.0.0.1:{port}/?token={token}')

  app = Page(state, token).app()
  app.on_startup.append(announce)
  try:
    web.run_app(app, sock=listener, print=lambda *words: None, access_log=None)
  finally:
    if path:
      with contextlib.suppress(OSError):
        os.remove(path)


def tcp_socket(port: int) -> socket.socket:
  """Returns a socket that listens on 127.0.0.1; port 0 for a free one.

  Raises:
    ValueError: if the port cannot be used; one sentence.
  """
  listener = socket.socket()
  try:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(('127.0.0.1', port))
    listener.listen()  # So that whoever reads the address can connect.
  except (OSError, OverflowError) as error:
    listener.close()
    raise ValueError(f'--port={port} cannot be used: {error}.') from error
  return listener


def unix_socket(path: str) -> socket.socket:
  """Returns a Unix socket that listens at `path`, which only this user may connect to.

  Raises:
    ValueError: if the path cannot be used; one sentence.
  """
  listener = socket.socket(socket.AF_UNIX)
  mask = os.umask(0o177)
  try:
    listener.bind(path)
    listener.listen()
  except OSError as error:
    listener.close()
    raise ValueError(f'--socket={path} cannot be used: {error.strerror or error}.') from error
  finally:
    os.umask(mask)
  return listener


@contextlib.contextmanager
def _known() -> Any:
  """Turns an unknown run or node into 404."""
  try:
    yield
  except (LookupError, ValueError) as error:
    raise web.HTTPNotFound(reason='There is no such run or node.') from error


def _run(request: web.Request) -> int:
  number = request.query.get('run', '0')
  if not (number.isascii() and number.isdigit()):
    raise ValueError(number)
  return int(number)


def _asset(name: str) -> bytes:
  return (importlib.resources.files('viewing.web') / 'static' / name).read_bytes()
