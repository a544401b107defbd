"""What the tests of commands share: how one fails, and what training tells."""

import pytest


def fails(main, argv, capsys, code=2):
    """The one line on standard error of a command that ends with a status."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as status:
        main(argv)
    assert status.value.code == code
    err = capsys.readouterr().err
    assert err.count("\n") == 1, err
    return err


def losses_in(text):
    """Loss by step, of what a training tells; the last line may be torn."""
    losses = {}
    for line in text.splitlines():
        if line.startswith("step ") and line.count(" | ") >= 6:
            step, _, loss = line.split(" | ")[:3]
            losses[int(step.split()[1])] = float(loss.split()[1])
    return losses
