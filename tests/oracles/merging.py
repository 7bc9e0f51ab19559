"""Merge methods, coordinate by coordinate in Python floats."""

from tests.oracles.fisher import mean, process

Client = tuple[str, str, list[float], list[float]]
"""Role, domain, task vector, raw Fisher."""


def firm(clients: list[Client], alpha: float, eps0: float) -> list[float]:
    """Eq. 2, 3 and 4."""
    forget = [client for client in clients if client[0] == "forget"]
    pooled = []
    for domain in sorted({client[1] for client in forget}):
        members = [client for client in forget if client[1] == domain]
        pooled.append((mean([m[2] for m in members]), mean([m[3] for m in members])))
    retain = [(client[2], client[3]) for client in clients if client[0] == "retain"]
    size = len(clients[0][2])
    merged = [0.0] * size
    for group in (pooled, retain):
        weights = [process(fisher, alpha, eps0) for _, fisher in group]
        for j in range(size):
            numerator = sum(w[j] * update[j] for w, (update, _) in zip(weights, group, strict=True))
            denominator = sum(w[j] for w in weights) + eps0
            merged[j] += numerator / denominator if numerator else 0.0
    return merged


def ties(updates: list[list[float]], kept: int) -> list[float]:
    """Keep ``kept`` entries a client, elect by the sum, average those who agree."""
    trimmed = []
    for update in updates:
        threshold = sorted((abs(value) for value in update), reverse=True)[kept - 1]
        trimmed.append([value if abs(value) >= threshold else 0.0 for value in update])
    merged = []
    for column in zip(*trimmed, strict=True):
        net = sum(column)
        agreeing = [value for value in column if value * net > 0.0]
        merged.append(sum(agreeing) / len(agreeing) if agreeing else 0.0)
    return merged
