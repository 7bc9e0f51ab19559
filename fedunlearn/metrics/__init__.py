"""One metric a file, each for one question; averaging over questions is the caller's."""
