"""Tables and descriptions in kubectl's form."""
