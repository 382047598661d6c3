"""What lint rules say: a page a rule, findings as text, as documents and as pages of documentation."""
