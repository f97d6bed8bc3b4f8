"""Graphs of runs, for tests of what looks at runs."""

from rundir.graph_file import Graph, Group


def graph(**roles):
  """Returns a graph with the given roles, by name of the group, as in `graph(player=['actor'])`."""
  return Graph(tuple(Group(name, 1, '', '', tuple(own)) for name, own in roles.items()), ())
