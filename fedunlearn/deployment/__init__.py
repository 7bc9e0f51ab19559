"""What a platform engineer needs around the apps: keys, units, a gate, and checks of a node."""

from fedunlearn.deployment.plan import DeploymentPlan, NodePlan, parse_node, read_nodes
from fedunlearn.deployment.writing import write_deployment

__all__ = ["DeploymentPlan", "NodePlan", "parse_node", "read_nodes", "write_deployment"]
