"""What ids and names may look like (they also name files), and how texts quote values."""

import re

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
NAME_RULE = "1-64 letters, digits, '.', '_' or '-', the first a letter or digit"

OWN_THREADS = "fedunlearn-block"
"""What the names of our pool's threads begin with; idle ones keep nobody waiting."""


def is_name(text: str) -> bool:
    """Whether ``text`` follows :data:`NAME_RULE`."""
    return NAME.fullmatch(text) is not None


LABEL_RULE = "1-64 printable characters, no slash"


def is_label(text: str) -> bool:
    """Whether ``text`` follows :data:`LABEL_RULE`, as a domain or an objective must."""
    fits = text.isprintable() and text == text.strip() and 1 <= len(text) <= 64
    return fits and not set("/\\") & set(text)


def shown(value: object) -> str:
    """Quote a value somebody else sent, briefly."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def printable(text: object, *, longest: int = 64, lines: bool = False) -> str:
    """Words somebody else sent, cut and safe for a terminal and a log; ``lines`` may break."""
    cut = str(text)[:longest]
    return "".join(c if c.isprintable() or (lines and c == "\n") else "?" for c in cut)
