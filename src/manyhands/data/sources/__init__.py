"""Where reviews come from: one file a format, one catalog line each."""
