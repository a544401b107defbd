"""A command that runs as this user, then as another, in `fork_server.py`."""

import os

import keras_transformer as kt


def translate(argv):
    """Prints a score as each user, and the user ids of the second.

    The first user imports all modules, as the second may not be able to.
    """
    path, user = argv
    print(kt.Translator.load(path).score([("a rose", "is a")])[0])
    os.setgroups([])
    os.setresgid(*[int(user)] * 3)
    os.setresuid(*[int(user)] * 3)
    print(kt.Translator.load(path).score([("a rose", "is a")])[0])
    print(*os.getresuid())
