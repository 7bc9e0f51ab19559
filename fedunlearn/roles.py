"""The two roles a client can have in a round."""

from typing import Literal, get_args

Role = Literal["forget", "retain"]
ROLES: tuple[Role, ...] = get_args(Role)
