"""A command as this user, then as another; a fork runs it: `fork_server.py`."""

import os

import keras_transformer as kt


def translate(argv):
    """Prints a translation by each user, and the ids of the second.

    The first one imports all modules: the second may not be able to.
    """
    path, user = argv
    print(kt.Translator.load(path).score([("a rose", "is a")])[0])
    os.setgroups([])
    os.setresgid(*[int(user)] * 3)
    os.setresuid(*[int(user)] * 3)
    print(kt.Translator.load(path).score([("a rose", "is a")])[0])
    print(*os.getresuid())
