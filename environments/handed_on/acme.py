"""The package acme, of the launcher's environment."""

from environments import interpreters

interpreters.load_handed_on(__name__)
