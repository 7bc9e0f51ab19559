"""The client's shell for evaluation: a Flower NumPyClient around :func:`measure_own`."""

import json

import torch
from flwr.client import NumPyClient
from flwr.common import NDArrays, Scalar

from clients.unlearn import shared_base, unchanged
from fedunlearn.data.reading import read_training_records
from fedunlearn.evaluation import EvaluationSettings
from fedunlearn.evaluation.own_data import encode_own, measure_own
from fedunlearn.models.loading import ModelSettings
from fedunlearn.training.client_settings import ClientIdentity


class EvaluatingClient(NumPyClient):
    """Measures base model and merge on the node's own data, and answers with aggregates.

    Args:
        identity: who this node is and where its data lies.
        model: the base model.
        chosen: lengths and batch size.
    """

    def __init__(
        self, identity: ClientIdentity, model: ModelSettings, chosen: EvaluationSettings
    ) -> None:
        self.identity = identity
        self._model = model
        self._chosen = chosen

    def evaluate(
        self, parameters: NDArrays, config: dict[str, Scalar]
    ) -> tuple[float, int, dict[str, Scalar]]:
        """Measure.

        Args:
            parameters: the update, dense float32, a weight each.
            config: ``names`` of the weights (JSON list), and ``merge``.

        Returns:
            1 minus the merged model's answer probability (Flower wants a loss), the number of
            records, and ``evaluation``, the JSON of :class:`OwnEvaluation`.

        Raises:
            InputError: too few records, or the update does not fit.
            DataError: the client's data is missing or malformed.
            RunError: the base model was changed.
        """
        names = json.loads(str(config["names"]))
        delta = {
            name: torch.from_numpy(array) for name, array in zip(names, parameters, strict=True)
        }
        records = read_training_records(self.identity.data)
        base = shared_base(self._model)
        with unchanged(base):
            found = measure_own(base, delta, records, self._chosen, merge=str(config["merge"]))
        score = found.merged.answer_probability
        return 1.0 - score.mean, score.n, {"evaluation": encode_own(found)}
