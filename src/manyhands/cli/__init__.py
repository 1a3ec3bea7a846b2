"""The command line: one small file for each command, which parses, calls one library function and prints."""
