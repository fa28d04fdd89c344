"""The papers' models."""
