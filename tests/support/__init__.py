"""What several tests share: none of these modules is a test, and no test is imported."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
