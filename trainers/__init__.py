"""Commands that train, average, translate and evaluate."""

import os
import sys

from keras_transformer.commands.quiet import hide_interrupt

if os.path.basename(sys.argv[0]).startswith(("kt-", "-m")):
    sys.excepthook = hide_interrupt
