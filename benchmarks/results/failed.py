"""The error of a run that did not come to a result."""


class Failed(Exception):
  """A run did not come to a result; one sentence."""
