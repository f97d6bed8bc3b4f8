"""Packages of this environment for processes under another interpreter; see `environments.interpreters`.

The folder is on their PYTHONPATH, where each module here is found in place of the package of its name.
"""
