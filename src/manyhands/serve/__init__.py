"""A trained model behind HTTP: requests in, one model call for many of them, and a page to try it."""
