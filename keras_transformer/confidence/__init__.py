"""How sure a translation is, and checks by rule."""
