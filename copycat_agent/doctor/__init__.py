"""`copycat doctor`: what needs the world, looked at step by step, with the fix for what is wrong. Changes nothing."""

from __future__ import annotations

from copycat_agent.doctor.examine import Subject, examine, only_unreachable, worst
from copycat_agent.doctor.model import Step, Verdict
from copycat_agent.doctor.users import User, find_user

__all__ = ["Step", "Subject", "User", "Verdict", "examine", "find_user", "only_unreachable", "worst"]
