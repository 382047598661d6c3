"""Floor 6: reasons and states as messages, sentences, tables and documents."""
