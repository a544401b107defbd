"""How sure a translation is: calibrated probabilities, and checks by rule."""
