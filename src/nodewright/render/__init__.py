"""Floor 5: reasons and states as messages, sentences, tables and documents."""
