"""The process that holds replay: Reverb's own server, and the door in front of its port.

Reverb has wheels for Python 3.11 at most, so it has a process and an environment of its own. Except
`child`, which the replay node imports, these modules run there, and import only the standard library,
`courier` and Reverb.
"""
