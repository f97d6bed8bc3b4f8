"""Remote procedure calls between Python processes, with the interface of Launchpad's Courier.

server = courier.Server(port=5000)
server.Bind('add', lambda a, b: a + b)
server.Start()

client = courier.Client('localhost:5000')
client.add(4, 7)                   # 11, computed on the server.
client.futures.add(4, 7).result()  # The same, without waiting in between.
"""

from courier.python.client import Client, list_methods
from courier.python.py_server import Server
from courier.status import StatusCode, StatusNotOk

__all__ = ['Client', 'Server', 'StatusCode', 'StatusNotOk', 'list_methods']
