"""Where messages come from without end: one file a kind of stream, one catalog line each."""
