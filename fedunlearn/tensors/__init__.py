"""Pure tensor functions: Fisher processing, projection, low rank factors, bit patterns."""
