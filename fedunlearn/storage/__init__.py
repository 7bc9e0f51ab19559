"""Files and folders that are there whole or not at all."""

from fedunlearn.storage.folders import atomic_folder, claim_folder
from fedunlearn.storage.json_files import (
    read_json,
    read_typed,
    replace_json,
    to_json,
    write_json,
)
from fedunlearn.storage.tensor_files import TensorFile, write_tensors
from fedunlearn.storage.tensor_writer import TensorWriter

__all__ = [
    "TensorFile",
    "TensorWriter",
    "atomic_folder",
    "claim_folder",
    "read_json",
    "read_typed",
    "replace_json",
    "to_json",
    "write_json",
    "write_tensors",
]
