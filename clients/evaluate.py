"""The client's shell for evaluation: a Flower NumPyClient around :func:`measure_own`."""

import json
import logging

import torch
from flwr.client import NumPyClient
from flwr.common import NDArrays, Scalar
from torch import Tensor

from clients.unlearn import shared_base, unchanged
from fedunlearn.data.reading import read_training_records
from fedunlearn.errors import DataError, FedUnlearnError, RunError
from fedunlearn.evaluation import EvaluationSettings
from fedunlearn.evaluation.own_data import OwnEvaluation, encode_own, measure_own
from fedunlearn.models.loading import ModelSettings
from fedunlearn.training.client_settings import ClientIdentity

logger = logging.getLogger(__name__)


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
            RunError: the base model was changed; or the data cannot be measured, whose reason
                stays in the node's log, as it may quote a record.
        """
        names = json.loads(str(config["names"]))
        delta = {name: torch.tensor(array) for name, array in zip(names, parameters, strict=True)}
        found = self._measured(delta, str(config["merge"]))
        score = found.merged.answer_probability
        return 1.0 - score.mean, score.n, {"evaluation": encode_own(found)}

    def _measured(self, delta: dict[str, Tensor], merge: str) -> OwnEvaluation:
        try:
            records = read_training_records(self.identity.data)
            base = shared_base(self._model)
            with unchanged(base):
                return measure_own(base, delta, records, self._chosen, merge=merge)
        except Exception as fault:
            if isinstance(fault, FedUnlearnError) and not isinstance(fault, DataError):
                raise
            logger.warning("client %s cannot measure", self.identity.id, exc_info=True)
            raise RunError("its data cannot be measured; the log of its node says why") from None
