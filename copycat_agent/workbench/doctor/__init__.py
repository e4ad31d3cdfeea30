"""`copycat doctor`: what needs the world, looked at step by step, with the fix for what is wrong. Changes nothing."""

from __future__ import annotations

from copycat_agent.workbench.doctor.examine import Examined, examine, only_unreachable, worst
from copycat_agent.workbench.doctor.steps import CheckStep, CheckVerdict
from copycat_agent.workbench.doctor.users import User, find_user

__all__ = ["CheckStep", "CheckVerdict", "Examined", "User", "examine", "find_user", "only_unreachable", "worst"]
