"""The command line: one small file a verb, which parses, calls one library function and prints."""
