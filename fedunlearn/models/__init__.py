"""Everything that touches transformers and PEFT: loading, adapters, patching, the tiny model."""
