"""The documentation pages of the lint rules, one value a rule."""
