"""What a client contributes to a round: typed, validated, on disk and on the wire.

A summary is sent once and holds everything the server needs for every merge, scale and budget it
may try later: the LoRA factors of the task vector and the raw Fisher diagonal (FIRM, section
"What a client sends"), with enough about their origin to refuse what does not belong together.
"""

from fedunlearn.models.plain_lora import LoraLayout
from fedunlearn.summary.client_summary import ClientSummary
from fedunlearn.summary.consistency import check_consistent
from fedunlearn.summary.files import (
    load_summary,
    open_summaries,
    open_summary,
    save_summary,
)
from fedunlearn.summary.forms import (
    UploadForm,
    dense_form,
    factors_form,
    summary_form,
    upload_bytes,
)
from fedunlearn.summary.layout import adapter_keys, layout_digest, parameter_name
from fedunlearn.summary.meta import FORMAT_VERSION, SummaryMeta
from fedunlearn.summary.norms import FISHER, TASK_VECTOR, norms_of, scaled
from fedunlearn.summary.wire import from_wire, to_wire, wire_bytes

__all__ = [
    "FISHER",
    "FORMAT_VERSION",
    "TASK_VECTOR",
    "ClientSummary",
    "LoraLayout",
    "SummaryMeta",
    "UploadForm",
    "adapter_keys",
    "check_consistent",
    "dense_form",
    "factors_form",
    "from_wire",
    "layout_digest",
    "load_summary",
    "norms_of",
    "open_summaries",
    "open_summary",
    "parameter_name",
    "save_summary",
    "scaled",
    "summary_form",
    "to_wire",
    "upload_bytes",
    "wire_bytes",
]
