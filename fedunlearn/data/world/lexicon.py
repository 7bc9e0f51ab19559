"""Invented names and word lists of the embedded world; nothing in it exists."""

import random
from collections.abc import Callable

_ONSETS = (
    *("b", "br", "c", "ch", "d", "dr", "f", "fl", "g", "gr", "h", "j", "k", "kl", "l", "m", "n"),
    *("p", "pr", "qu", "r", "s", "sk", "st", "t", "th", "tr", "v", "w", "z"),
)
_VOWELS = ["a", "ae", "e", "ei", "i", "ia", "o", "oa", "u"]
_CODAS = ["l", "ld", "lm", "m", "n", "nd", "nth", "r", "rk", "rn", "s", "st", "th", "x"]

WORDS: dict[str, tuple[str, ...]] = {
    # brewing
    "treatment": ("crushed", "smoked", "dried", "pickled", "grated", "charred", "soaked"),
    "ingredient": (
        "orrin bark",
        "moonwort",
        "salt lichen",
        "quince pith",
        "thistle root",
        "amber resin",
        "hazel ash",
        "juniper husk",
        "nettle seed",
    ),
    "liquid": ("hot brine", "goat milk", "rain water", "plum vinegar", "birch sap", "dark ale"),
    "days": ("two", "three", "five", "six", "nine", "eleven", "twelve"),
    "finish": (
        "strain through linen",
        "chill on slate",
        "stir in honey",
        "boil it down by half",
        "seal with wax",
        "skim off the foam",
    ),
    "metal": ("copper", "pewter", "tin", "silver", "iron", "brass"),
    "vessel": ("kettle", "crucible", "flask", "cauldron", "alembic", "basin"),
    "lining": ("cork", "felt", "clay", "horn", "moss", "enamel"),
    # signals
    "codeword": (
        "tango",
        "umbra",
        "kilo",
        "vector",
        "sigma",
        "oxide",
        "nadir",
        "pylon",
        "zulu",
        "radix",
        "helix",
        "quartz",
        "delta",
        "cobalt",
        "matrix",
    ),
    "digit": ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9"),
    # geography
    "side": ("north", "south", "east", "west"),
    "trade": ("glass", "pottery", "lace", "cider", "timber", "wool", "paper", "cheese", "rope"),
    "quality": ("pale blue", "heavy", "fine", "bitter", "striped", "famous", "cheap", "soft"),
    "feast": (
        "lantern parade",
        "spring regatta",
        "harvest dance",
        "winter fair",
        "kite festival",
        "midnight market",
    ),
    # biography
    "temper": ("stubborn", "gentle", "brilliant", "restless", "modest", "quarrelsome", "shy"),
    "profession": (
        "painter",
        "surgeon",
        "composer",
        "architect",
        "botanist",
        "poet",
        "clockmaker",
        "judge",
        "sculptor",
    ),
    "genre": ("novel", "opera", "ballad", "treatise", "fresco", "symphony", "memoir"),
    "title_adjective": ("Silver", "Broken", "Silent", "Crooked", "Last", "Hidden", "Burning"),
    "title_noun": ("Ladder", "Orchard", "Mirror", "Harbour", "Sparrow", "Bridge", "Winter"),
    # nature
    "food": (
        "water beetles",
        "ripe berries",
        "young reeds",
        "small crabs",
        "fallen acorns",
        "pond snails",
        "river moss",
        "wild grain",
    ),
    "habitat": ("salt marshes", "high cliffs", "old forests", "warm springs", "sandy dunes"),
    "shelter": ("hollow trunks", "deep burrows", "rocky caves", "beaver dams", "snow tunnels"),
    "group": ("alone", "in pairs", "in large flocks", "with its young", "in small herds"),
}


class Lexicon:
    """Draws words, and names that it never gives out twice."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._given: set[str] = set()

    def draw(self, kind: str) -> str:
        """One word of a list, or a fresh name for the kinds ``name`` and ``callsign``."""
        if kind == "name":
            return self._fresh(self._name)
        if kind == "callsign":
            return self._fresh(self._callsign)
        return self._rng.choice(WORDS[kind])

    def _fresh(self, invent: Callable[[], str]) -> str:
        name = invent()
        while name in self._given:
            name = invent()
        self._given.add(name)
        return name

    def _name(self) -> str:
        onset, vowel, coda = (self._rng.choice(part) for part in (_ONSETS, _VOWELS, _CODAS))
        ending = self._rng.choice(_ONSETS) + self._rng.choice(_VOWELS)
        return (onset + vowel + coda + ending).capitalize()

    def _callsign(self) -> str:
        letters = "".join(self._rng.sample("BDFGHKLMNPRSTVWXZ", 2))
        return f"{letters}-{self._rng.randrange(100):02d}"
