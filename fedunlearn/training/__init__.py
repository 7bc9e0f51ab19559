"""The training loop, the Fisher pass, and what a client does in a round."""
