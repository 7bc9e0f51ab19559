"""What an auditor of an erasure request asks for: who, on what, with which result, sealed."""

from fedunlearn.receipts.checking import verify
from fedunlearn.receipts.document import (
    RECEIPT_FILE,
    Previous,
    Receipt,
    ReceiptClient,
    read_receipt,
)
from fedunlearn.receipts.issuing import RunRecord, issue
from fedunlearn.receipts.sequence import Standing, ceilings, check_start, standing

__all__ = [
    "RECEIPT_FILE",
    "Previous",
    "Receipt",
    "ReceiptClient",
    "RunRecord",
    "Standing",
    "ceilings",
    "check_start",
    "issue",
    "read_receipt",
    "standing",
    "verify",
]
